// Trains on tinyshakespeare.txt. Needs TANDEM_SHAKESPEARE, the path of the file.
#include <iostream>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

constexpr std::chrono::seconds kBound{800};  // takes 90 s on two idle cores

TEST(LanguageModelExample, ValidationLossMatchesPyTorchAfter500Steps) {
  const char* data = std::getenv("TANDEM_SHAKESPEARE");
  ASSERT_TRUE(data != nullptr && *data != '\0')
      << "set TANDEM_SHAKESPEARE to the file tinyshakespeare.txt, with --test_env=TANDEM_SHAKESPEARE";
  const auto result = run_example("language_model",
                                  {"--nproc", "2", "--data", data, "--batch-size", "16", "--max-steps", "500", "--out",
                                   fresh_folder("shakespeare"), "--sample", "200"},
                                  {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  std::cout << result.out;
  // PyTorch's loss with the same model, initial distribution, optimizer, schedule and batch, but another data order.
  constexpr double kPyTorch = 1.9716;
  EXPECT_LT(number_after(result.out, "\nvalidation loss "), kPyTorch + 0.03);
  EXPECT_NE(result.out.find(" after 500 steps\n"), std::string::npos) << result.out;
}

}  // namespace
