#include <tandem/benchmarks/support/cases.h>
#include <tandem/tests/support/test.h>

namespace tandem::benchmarks { namespace {

TEST(TrainingCase, LoadedCaseReproducesLosses) {
  const std::string path = ::testing::TempDir() + "/lenet.safetensors";
  manual_seed(1);
  TrainingCase first = make_case("lenet");
  save_case(first, path);
  manual_seed(2);
  TrainingCase second = make_case("lenet");
  EXPECT_NE(second.input.to_vector<float>(), first.input.to_vector<float>());
  load_case(second, path);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.step().item<float>(), second.step().item<float>());
}

TEST(TrainingCase, FileOfAnotherCaseIsRejected) {
  const std::string path = ::testing::TempDir() + "/mlp.safetensors";
  save_case(make_case("mlp"), path);
  TrainingCase lenet = make_case("lenet");
  EXPECT_THROW(load_case(lenet, path), StateError);
}

TEST(TrainingCase, UnknownNameIsRejected) {
  EXPECT_EQ(case_names(),
            (std::vector<std::string>{"mlp", "lenet", "resnet18", "mobilenet-v2", "dcgan", "unet", "lstm", "gpt-small",
                                      "gpt-384", "gpt2-124m-4", "gpt2-124m-64", "resnet50-256"}));
  EXPECT_EQ(tandem::testing::error_text<ValueError>([] { make_case("vgg"); }),
            "make_case: unknown case 'vgg'; see case_names()");
}

/// The loss of a uniform guess among 65 classes is log 65 = 4.17.
TEST(TrainingCase, InitialGptLossIsNearUniformGuess) {
  manual_seed(3);
  TrainingCase gpt = make_case("gpt-small");
  EXPECT_EQ(gpt.items_per_step, 16 * 128);
  EXPECT_NEAR(gpt.step().item<double>(), 4.17, 0.2);
}

}}  // namespace tandem::benchmarks
