// Trains the examples on a GPU and on the CPU with the same steps, and compares the weights within rounding.
#include <tandem/io/safetensors.h>
#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;
using tandem::testing_support::Variables;

/// No checks of emulated kernels: other tests do them, and they would take most of the time.
const Variables kUnchecked = {{"TANDEM_EMULATED_CHECKS", "0"}, {"TANDEM_EMULATED_GPUS", "4"}};

struct Training {
  std::string out;
  std::string folder;
};

Training train(const std::string& name, Arguments arguments, const std::string& device, const std::string& kind = "") {
  const std::string folder = fresh_folder(name + kind + "_" + device);
  const bool are_threads = device.find(',') != std::string::npos;
  arguments.insert(arguments.end(), {are_threads ? "--devices" : "--device", device, "--out", folder});
  const auto result = run_example(name, arguments, kUnchecked);
  EXPECT_EQ(result.status, 0) << result.err;
  const bool are_several = are_threads || std::find(arguments.begin(), arguments.end(), "--nproc") != arguments.end();
  const bool joins_gpus = are_several && device.rfind("cuda", 0) == 0;
  const auto lines = std::count(result.err.begin(), result.err.end(), '\n');
  EXPECT_EQ(lines, joins_gpus ? 1 : 0) << result.err;
  EXPECT_EQ(result.err.find(" x tandem emulated GPU, CUDA ") != std::string::npos, joins_gpus) << result.err;
  return {result.out, folder};
}

void expect_equal_weights(const Training& a, const Training& b, double tolerance) {
  const auto a_tensors = tandem::io::load_safetensors(a.folder + "/model.safetensors").tensors;
  const auto b_tensors = tandem::io::load_safetensors(b.folder + "/model.safetensors").tensors;
  ASSERT_EQ(a_tensors.size(), b_tensors.size());
  ASSERT_GT(a_tensors.size(), 0u);
  for (size_t i = 0; i < a_tensors.size(); ++i) {
    ASSERT_EQ(a_tensors[i].first, b_tensors[i].first);
    const auto x = a_tensors[i].second.to_vector<double>();
    const auto y = b_tensors[i].second.to_vector<double>();
    ASSERT_EQ(x.size(), y.size());
    double worst = 0;
    for (size_t j = 0; j < x.size(); ++j) worst = std::max(worst, std::abs(x[j] - y[j]) / (1 + std::abs(y[j])));
    EXPECT_LE(worst, tolerance) << a_tensors[i].first;
  }
}

void expect_equal_training(const std::string& name, const Arguments& arguments, double tolerance) {
  const Training gpu = train(name, arguments, "cuda");
  const Training cpu = train(name, arguments, "cpu");
  expect_equal_weights(gpu, cpu, tolerance);
}

TEST(GpuTraining, ExceedingGpuMemoryReportsOutOfMemory) {
  const auto result = run_example("mnist", {"--device", "cuda", "--max-steps", "1", "--out", fresh_folder("small")},
                                  {{"TANDEM_EMULATED_GPU_MIB", "2"}});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("cuda:0 is out of memory"), std::string::npos) << result.err;
}

TEST(GpuTraining, OwnOperationMatchesCpu) { expect_equal_training("custom_op", {"--max-steps", "3"}, 1e-5); }

// Actions are drawn from probabilities with other rounding, so the weights are not compared.
TEST(GpuTraining, ReinforcePlaysAndLearns) {
  const Training gpu = train("reinforce", {"--max-steps", "1", "--batch-size", "2", "--width", "4"}, "cuda");
  EXPECT_NE(gpu.out.find(" after 1 step\n"), std::string::npos) << gpu.out;
}

// Gradients are reduced by NCCL.
TEST(GpuTraining, TwoRanksWithOneGpuEachMatchCpu) {
  const Arguments arguments = {"--max-steps", "3", "--batch-size", "8", "--nproc", "2"};
  expect_equal_training("mnist", arguments, 1e-5);
  const Training threads = train("mnist", {"--max-steps", "3", "--batch-size", "8"}, "cuda:1,cuda:0", "_threads");
  const Training processes = train("mnist", arguments, "cpu", "_processes");
  expect_equal_weights(threads, processes, 1e-5);
}

TEST(GpuTraining, ResNetOnFourGpusMatchesCpu) {
  expect_equal_training(
      "resnet_cifar",
      {"--width", "4", "--images", "64", "--batch-size", "4", "--max-steps", "2", "--nproc", "4", "--lr", "0.01"},
      1e-4);
}

TEST(GpuTraining, LeNetWithGradientAccumulationMatchesCpu) {
  const TemporaryFolder data;
  write_small_data(data.path());
  expect_equal_training("mnist",
                        {"--model", "lenet", "--data", data.path(), "--epochs", "2", "--batch-size", "4",
                         "--accumulate", "2", "--lr", "0.02"},
                        1e-4);
}

TEST(GpuTraining, TransformerWeightsAndSamplesMatchCpu) {
  const TemporaryFolder data;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcdefgh";
  const Arguments arguments = {"--layers",     "1",
                               "--width",      "16",
                               "--heads",      "2",
                               "--context",    "8",
                               "--data",       data.write("text.txt", text),
                               "--batch-size", "4",
                               "--max-steps",  "40",
                               "--lr",         "0.02",
                               "--dropout",    "0.1",
                               "--sample",     "16",
                               "--prompt",     "fgh",
                               "--top-k",      "1"};
  const Training gpu = train("language_model", arguments, "cuda");
  const Training cpu = train("language_model", arguments, "cpu");
  expect_equal_weights(gpu, cpu, 2e-3);
  const auto sample = [](const std::string& out) { return out.substr(out.rfind("\nsaved ")); };
  EXPECT_NE(gpu.out.find("abcdefgh"), std::string::npos) << gpu.out;
  EXPECT_EQ(sample(gpu.out).substr(sample(gpu.out).find('\n', 1)),
            sample(cpu.out).substr(sample(cpu.out).find('\n', 1)));
}

TEST(GpuTraining, FineTunedGpt2AndGeneratedTextMatchCpu) {
  const Arguments arguments = {"--model",          "tests/fixtures/gpt2",
                               "--data",           "tests/fixtures/gpt2/vocab.json",
                               "--context",        "8",
                               "--batch-size",     "4",
                               "--max-steps",      "3",
                               "--prompt",         "MENENIUS:",
                               "--max-new-tokens", "8"};
  const Training gpu = train("finetune_gpt2", arguments, "cuda");
  const Training cpu = train("finetune_gpt2", arguments, "cpu");
  expect_equal_weights(gpu, cpu, 1e-4);
  const auto text = [](const std::string& out) { return out.substr(out.rfind("MENENIUS:")); };
  EXPECT_EQ(text(gpu.out), text(cpu.out));
}

TEST(GpuTraining, ResNetOnOneGpuMatchesCpu) {
  expect_equal_training("resnet_cifar", {"--width", "4", "--images", "60", "--batch-size", "10", "--max-steps", "2"},
                        1e-3);
}

TEST(GpuTraining, GanOnTwoGpusMatchesCpu) {
  expect_equal_training(
      "gan",
      {"--width", "4", "--latent", "8", "--images", "16", "--batch-size", "4", "--max-steps", "2", "--nproc", "2"},
      1e-3);
}

TEST(GpuTraining, ImageNetOnTwoGpusMatchesCpu) {
  expect_equal_training("imagenet",
                        {"--width", "4", "--size", "16", "--images", "24", "--batch-size", "6", "--max-steps", "2",
                         "--nproc", "2", "--lr", "0.01"},
                        1e-3);
}

TEST(GpuTraining, DiffusionOnOneGpuMatchesCpu) {
  expect_equal_training("diffusion",
                        {"--width", "8", "--levels", "2", "--patch", "4", "--images", "20", "--sample-steps", "2",
                         "--batch-size", "4", "--max-steps", "2", "--lr", "0.0001"},
                        1e-3);
}

TEST(GpuTraining, HalfPrecisionTrainingConvergesOnTwoGpus) {
  const TemporaryFolder data;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcdefgh";
  const std::string file = data.write("text.txt", text);
  const auto run = [&](const std::string& dtype, const char* size, const char* steps) {
    return train("language_model",
                 {"--nproc", "2",    "--layers",  "1",  "--width",      "16", "--heads",     "2",   "--data", file,
                  "--lr",    "0.02", "--context", size, "--batch-size", size, "--max-steps", steps, "--amp",  dtype},
                 "cuda", dtype + size);
  };
  for (const std::string dtype : {"bfloat16", "float16"}) {
    const Training gpu = run(dtype, "6", "40");
    EXPECT_LT(number_after(gpu.out, "\nvalidation loss "), 0.5) << gpu.out;  // starts at ln 8 = 2.1
  }
  // With batches of one character, gradients overflow float16 at the initial loss scale.
  const Training small = run("float16", "1", "3");
  const std::string skipped = "step 1 skipped: gradients are not finite; loss scale reduced to 32768\n";
  EXPECT_NE(small.out.find(skipped), std::string::npos) << small.out;
}

TEST(GpuTraining, PowerSgdResumesBitExactly) {
  const TemporaryFolder data;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcdefgh";
  const std::string file = data.write("text.txt", text), whole = fresh_folder("whole"), parts = fresh_folder("parts");
  const auto run = [&](const std::string& folder, const Arguments& more) {
    Arguments arguments = {"--device",     "cuda",
                           "--nproc",      "2",
                           "--data",       file,
                           "--layers",     "1",
                           "--width",      "16",
                           "--heads",      "2",
                           "--context",    "4",
                           "--batch-size", "2",
                           "--max-steps",  "14",
                           "--save-every", "12",
                           "--compress",   "power_sgd,bf16",
                           "--out",        folder};
    arguments.insert(arguments.end(), {"--hook-report-every", "12"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run_example("language_model", arguments, kUnchecked);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string out = run(whole, {});
  EXPECT_NE(out.find("\ngradients, step 12: relative error 0."), std::string::npos) << out;
  std::filesystem::create_directories(parts);
  std::filesystem::copy(whole + "/checkpoints", parts + "/checkpoints", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(parts + "/checkpoints/step-00000014");
  const std::string rest = run(parts, {"--resume"});
  EXPECT_NE(rest.find(": 12 steps of 14 done\n"), std::string::npos) << rest;
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
}

TEST(GpuTraining, GpuCheckpointResumesOnCpu) {
  const TemporaryFolder data;
  write_small_data(data.path());
  const Arguments arguments = {"--data", data.path(), "--batch-size", "8", "--epochs", "1", "--save-every", "2"};
  const auto run = [&](const std::string& folder, Arguments more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    more.insert(more.end(), {"--out", folder});
    const auto result = run_example("mnist", more, kUnchecked);
    EXPECT_EQ(result.status, 0) << result.err;
  };
  const Training whole{"", fresh_folder("whole")};
  const Training resumed{"", fresh_folder("resumed")};
  run(whole.folder, {"--device", "cpu"});
  run(resumed.folder, {"--device", "cuda", "--max-steps", "2"});
  run(resumed.folder, {"--device", "cpu", "--resume"});
  expect_equal_weights(resumed, whole, 1e-5);
}

}  // namespace
