// Trains on MNIST's t10k files. Needs TANDEM_MNIST_DIR, the folder of the files.
#include <iostream>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

constexpr std::chrono::seconds kBound{120};  // takes a few seconds on two idle cores

std::string folder() {
  const char* data = std::getenv("TANDEM_MNIST_DIR");
  EXPECT_TRUE(data != nullptr && *data != '\0')
      << "set TANDEM_MNIST_DIR to the folder of MNIST's files, with --test_env=TANDEM_MNIST_DIR";
  return data != nullptr ? data : "";
}

TEST(MnistExample, TwoRanksReach95PercentReproducibly) {
  const std::string data = folder();
  ASSERT_FALSE(data.empty());
  std::vector<std::string> files;
  for (const std::string name : {"first", "second"}) {
    const std::string out = fresh_folder(name);
    const auto result =
        run_example("mnist", {"--nproc", "2", "--epochs", "5", "--data", data, "--out", out}, {}, kBound);
    ASSERT_EQ(result.status, 0) << result.err;
    std::cout << result.out;
    EXPECT_GE(number_after(result.out, "test accuracy "), 95);
    files.push_back(read_file(out + "/model.safetensors"));
  }
  EXPECT_GT(files[0].size(), 4u * 1024 * 1024);
  EXPECT_TRUE(files[0] == files[1]);
}

TEST(MnistExample, LeNetReaches97Point5Percent) {
  const std::string data = folder();
  ASSERT_FALSE(data.empty());
  const auto result = run_example(
      "mnist", {"--model", "lenet", "--nproc", "2", "--epochs", "5", "--data", data, "--out", fresh_folder("lenet")},
      {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  std::cout << result.out;
  EXPECT_GE(number_after(result.out, "test accuracy "), 97.5);
}

}  // namespace
