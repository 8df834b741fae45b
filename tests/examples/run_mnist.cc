#include <tandem/tests/examples/run_mnist.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include <tandem/tests/data/idx_files.h>

namespace tandem::testing_support {

Arguments mnist_command(Arguments arguments) {
  arguments.insert(arguments.begin(), "examples/mnist/mnist");
  return arguments;
}

Subprocess::Result run_mnist(const Arguments& arguments, const Variables& variables) {
  Subprocess::Result result = run_program(mnist_command(arguments), variables);
  result.err = without_crowding_note(result.err);
  return result;
}

std::string without_crowding_note(const std::string& err) {
  std::string kept;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    if (!line.ends_with("they will take turns")) kept += line + "\n";
  }
  return kept;
}

void write_small_data(const std::string& folder) {
  constexpr int kImages = 50;
  testing::Bytes pixels;
  testing::Bytes labels;
  for (int i = 0; i < kImages; ++i) {
    labels.push_back(static_cast<uint8_t>(i % 10));
    for (int row = 0; row < 28; ++row) pixels.insert(pixels.end(), 28, row / 2 == i % 10 ? 255 : 0);
  }
  testing::write_file(folder + "/t10k-images-idx3-ubyte.gz", testing::gzip(testing::idx({kImages, 28, 28}, pixels)));
  testing::write_file(folder + "/t10k-labels-idx1-ubyte", testing::idx({kImages}, labels));
}

std::string fresh_folder(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(base != nullptr ? base : "/tmp") + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

double number_after(const std::string& text, const std::string& label) {
  const size_t at = text.rfind(label);
  if (at == std::string::npos) return std::numeric_limits<double>::quiet_NaN();
  return std::strtod(text.c_str() + at + label.size(), nullptr);
}

}  // namespace tandem::testing_support
