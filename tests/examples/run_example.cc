#include <tandem/tests/examples/run_example.h>

#include <tandem/data/image.h>
#include <tandem/io/safetensors.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tests/data/idx_files.h>

namespace tandem::testing_support {

Arguments joined(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Arguments example_command(const std::string& name, Arguments arguments) {
  arguments.insert(arguments.begin(), "examples/" + name + "/" + name);
  return arguments;
}

Subprocess::Result run_example(const std::string& name, const Arguments& arguments, const Variables& variables,
                               std::chrono::seconds bound) {
  Subprocess::Result result = Subprocess(example_command(name, arguments), variables).wait(bound);
  result.err = messages(result.err);
  return result;
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

void expect_equal_training(const std::string& name, const Arguments& arguments) {
  const auto train = [&](const std::string& kind, int64_t batch, const Arguments& more) {
    const std::string out = fresh_folder("equal_" + kind);
    Arguments all = arguments;
    all.insert(all.end(), {"--batch-size", std::to_string(batch), "--out", out});
    all.insert(all.end(), more.begin(), more.end());
    const auto result = run_example(name, all);
    EXPECT_EQ(result.status, 0) << result.err;
    return io::load_safetensors(out + "/model.safetensors").tensors;
  };
  constexpr int64_t kBatch = 4;
  const auto ranks = train("ranks", kBatch, {"--nproc", "2"});
  const auto one = train("one", 2 * kBatch, {});
  const auto sums = train("sums", kBatch, {"--accumulate", "2"});
  ASSERT_EQ(ranks.size(), one.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto expected = one[i].second.to_vector<double>();
    for (const auto& other : {ranks, sums}) {
      ASSERT_EQ(other[i].first, one[i].first);
      const auto values = other[i].second.to_vector<double>();
      double worst = 0;
      for (size_t j = 0; j < values.size(); ++j) worst = std::max(worst, std::abs(values[j] - expected[j]));
      EXPECT_LT(worst, 2e-5) << one[i].first;
    }
  }
}

void expect_picture_grid(const std::string& path, int64_t channels, int64_t rows) {
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const Tensor grid = data::read_image(path).to(kFloat32);
  ASSERT_EQ(grid.shape(), Shape({channels, 2 + rows * 34, 2 + 8 * 34}));
  const auto image = [&](int64_t row, int64_t column) {
    return grid.narrow(1, 2 + row * 34, 32).narrow(2, 2 + column * 34, 32);
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < 8; ++column) {
      EXPECT_GT((image(row, column).max() - image(row, column).min()).item(), 2) << row << ", " << column;
    }
  }
  EXPECT_GT((image(0, 0) - image(rows - 1, 7)).abs().max().item(), 2);
}

std::string fresh_folder(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(base != nullptr ? base : "/tmp") + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

double number_after(const std::string& text, const std::string& label) {
  const size_t at = text.rfind(label);
  if (at == std::string::npos) return std::numeric_limits<double>::quiet_NaN();
  return std::strtod(text.c_str() + at + label.size(), nullptr);
}

}  // namespace tandem::testing_support
