#include <nlohmann/json.hpp>

#include <tandem/io/safetensors.h>
#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::Shape;
using tandem::testing::TemporaryFolder;

TEST(MnistExample, HelpListsEveryFlag) {
  const auto result = run_example("mnist", {"--help"});
  for (const char* flag :
       {"--model",      "--nproc", "--device",  "--epochs", "--max-steps",    "--batch-size", "--lr",
        "--accumulate", "--amp",   "--seed",    "--data",   "--out",          "--resume",     "--save-every",
        "--log-every",  "--trace", "--log-dir", "--tee",    "--max-restarts", "--timeout",    "--async-save"}) {
    EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
  }
  EXPECT_NE(result.out.find("Usage: mnist "), std::string::npos) << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 0);
}

TEST(MnistExample, InvalidFlagsAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--bogus"}, "The following argument was not expected: --bogus"},
      {{"results"}, "The following argument was not expected: results"},
      {{"--model", "cnn"}, "--model: cnn not in {mlp,lenet}"},
      {{"--epochs", "0"}, "--epochs: expected a whole number from 1 to 1000000000, got '0'"},
      {{"--epochs", "2.5"}, "--epochs: expected a whole number from 1 to 1000000000, got '2.5'"},
      {{"--epochs", "99999999999999999999"},
       "--epochs: expected a whole number from 1 to 1000000000, got '99999999999999999999'"},
      {{"--max-steps", "-1"}, "--max-steps: expected a whole number from 0 to 1000000000, got '-1'"},
      {{"--batch-size", "0"}, "--batch-size: expected a whole number from 1 to 1000000000, got '0'"},
      {{"--accumulate", "0"}, "--accumulate: expected a whole number from 1 to 1000000000, got '0'"},
      {{"--save-every", "x"}, "--save-every: expected a whole number from 0 to 1000000000, got 'x'"},
      {{"--lr", "-0.1"}, "--lr: expected a number from 0 to 1e+09, got '-0.1'"},
      {{"--lr", "nan"}, "--lr: expected a number from 0 to 1e+09, got 'nan'"},
      {{"--lr", "fast"}, "--lr: expected a number from 0 to 1e+09, got 'fast'"},
      {{"--lr"}, "--lr: 1 required FLOAT missing"},
      {{"--seed", "-1"}, "--seed: expected a whole number from 0 to 18446744073709551615, got '-1'"},
      {{"--data", ""}, "--data: the path is empty"},
      {{"--out", ""}, "--out: the path is empty"},
  };
  const std::string folder = fresh_folder("wrong_flags");
  std::filesystem::create_directory(folder);
  for (const auto& [arguments, text] : cases) {
    const auto result = run_example("mnist", arguments, {{"BUILD_WORKING_DIRECTORY", folder}});
    EXPECT_EQ(result.err, "mnist: " + text + "\nusage: mnist [--nproc N] [FLAG VALUE]...; --help lists all flags\n");
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.status, 2);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(MnistExample, TwoProcessesTrainAndSaveWeights) {
  const std::string folder = fresh_folder("trains");
  const auto result =
      run_example("mnist", {"--nproc", "2", "--max-steps", "20", "--batch-size", "16", "--out", folder});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("mlp on 2 ranks, 20000 training and 2000 test images drawn by this program\n"
                            "batch 16 per rank, 32 over all ranks; 20 steps\n"),
            0u)
      << result.out;
  const double accuracy = number_after(result.out, "test accuracy ");
  EXPECT_GT(accuracy, 10) << result.out;
  EXPECT_LE(accuracy, 100);
  EXPECT_NE(result.out.find(" % after 20 steps\n"), std::string::npos) << result.out;
  const double step = number_after(result.out, "\nstep ");
  const double local = number_after(result.out, " ms = local ");
  const double exposed = number_after(result.out, " + exposed ");
  const double stolen = number_after(result.out, " + stolen ");
  EXPECT_GT(local, 0);
  EXPECT_GE(exposed, 0);
  EXPECT_GE(stolen, 0);
  EXPECT_NEAR(step, local + exposed + stolen, 0.0201) << result.out;  // four numbers, each rounded to 0.01
  EXPECT_TRUE(result.out.ends_with("\nsaved " + folder + "/model.safetensors\n")) << result.out;

  const auto file = tandem::io::load_safetensors(folder + "/model.safetensors");
  EXPECT_EQ(file.metadata, (tandem::io::Metadata{{"format", "pt"}}));
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : file.tensors) {
    EXPECT_EQ(tensor.dtype(), tandem::kFloat32) << name;
    shapes.emplace(name, tensor.shape());
  }
  const std::map<std::string, Shape> expected = {{"fc1.weight", {1024, 784}},  {"fc1.bias", {1024}},
                                                 {"fc2.weight", {1024, 1024}}, {"fc2.bias", {1024}},
                                                 {"fc3.weight", {10, 1024}},   {"fc3.bias", {10}}};
  EXPECT_EQ(shapes, expected);
}

TEST(MnistExample, EqualSeedsGiveIdenticalWeights) {
  std::vector<std::string> files;
  for (const Arguments& seed : {Arguments{}, Arguments{"--seed", "1"}, Arguments{"--seed", "2"}}) {
    const std::string folder = fresh_folder("equal_bytes");
    Arguments arguments = {"--nproc", "2", "--max-steps", "7", "--out", folder};
    arguments.insert(arguments.end(), seed.begin(), seed.end());
    ASSERT_EQ(run_example("mnist", arguments).status, 0);
    files.push_back(read_file(folder + "/model.safetensors"));
  }
  EXPECT_GT(files[0].size(), 4u * 1024 * 1024);
  EXPECT_TRUE(files[0] == files[1]);
  EXPECT_FALSE(files[0] == files[2]);
}

TEST(MnistExample, TraceShowsBucketsLaunchedDuringBackward) {
  const std::string folder = fresh_folder("trace");
  constexpr int kSteps = 4;
  const auto result = run_example("mnist", {"--nproc", "2", "--max-steps", std::to_string(kSteps), "--out", folder,
                                            "--trace", folder + "/trace.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto trace = nlohmann::json::parse(read_file(folder + "/trace.json"));
  struct Span {
    double begin, end;
    bool contains(double t) const { return begin <= t && t <= end; }
  };
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<Span> steps;
    std::vector<Span> backwards;
    std::vector<Span> nodes;  // backward of single operations
    std::vector<double> launches;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("pid") != rank || event.at("ph") == "M") continue;
      const std::string name = event.at("name");
      const double begin = event.at("ts");
      if (event.at("ph") == "i") {
        if (name.starts_with("launch bucket 0 ")) launches.push_back(begin);
        continue;
      }
      const Span span = {begin, begin + event.at("dur").get<double>()};
      if (name == "step") steps.push_back(span);
      if (event.at("cat") == "backward") (name == "backward" ? backwards : nodes).push_back(span);
    }
    ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps)) << "rank " << rank;
    ASSERT_EQ(backwards.size(), steps.size());
    ASSERT_EQ(launches.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_TRUE(steps[i].contains(launches[i]));
      EXPECT_TRUE(steps[i].contains(backwards[i].end));
      EXPECT_LT(launches[i], backwards[i].end);
      // The launch must overlap with backward: several operations are differentiated after it.
      const auto later = std::count_if(nodes.begin(), nodes.end(), [&](const Span& node) {
        return backwards[i].contains(node.begin) && node.begin > launches[i];
      });
      EXPECT_GE(later, 2) << "rank " << rank << " step " << i;
    }
  }
}

TEST(MnistExample, InvalidDataGivesOneErrorAndNoOutput) {
  const TemporaryFolder truncated;
  write_small_data(truncated.path());
  const std::string cut_path = truncated.path() + "/t10k-images-idx3-ubyte.gz";
  std::filesystem::resize_file(cut_path, std::filesystem::file_size(cut_path) / 2);
  const TemporaryFolder foreign;
  write_small_data(foreign.path());
  std::filesystem::remove(foreign.path() + "/t10k-images-idx3-ubyte.gz");
  const std::string text_path = foreign.write("t10k-images-idx3-ubyte", std::string("hello"));
  const std::string missing = fresh_folder("no_such_folder");
  const std::string out = fresh_folder("wrong_data");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {missing, "MnistDataset: '" + missing +
                    "' does not have all files (each may end in .gz)\n"
                    "  train-images-idx3-ubyte  missing\n"
                    "  train-labels-idx1-ubyte  missing\n"
                    "  t10k-images-idx3-ubyte   missing\n"
                    "  t10k-labels-idx1-ubyte   missing\n"
                    "  a folder with only the t10k files is accepted: they are divided into training and test set\n"},
      {truncated.path(), "read_idx: '" + cut_path + "': "},
      {foreign.path(), "read_idx: '" + text_path + "': magic number: begins with 68 65, expected 00 00\n"},
  };
  for (const auto& [folder, text] : cases) {
    const auto result =
        run_example("mnist", {"--nproc", "2", "--data", folder, "--out", out, "--trace", out + "/traces/trace.json"});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    // Both ranks fail; the launcher prints one error.
    EXPECT_TRUE(result.err.starts_with("rank 0 of 2 failed (exit status 1): " + text) ||
                result.err.starts_with("rank 1 of 2 failed (exit status 1): " + text))
        << result.err;
    EXPECT_EQ(result.err.find("failed"), result.err.rfind("failed")) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST(MnistExample, RelativePathsUseTheUsersWorkingDirectory) {
  const TemporaryFolder user;
  std::filesystem::create_directory(user.path() + "/digits");
  write_small_data(user.path() + "/digits");
  const auto result = run_example("mnist",
                                  {"--nproc", "2", "--batch-size", "4", "--epochs", "30", "--data", "digits", "--out",
                                   "results/a", "--trace", "traces/b/trace.json", "--log-dir", "logs", "--tee"},
                                  {{"BUILD_WORKING_DIRECTORY", user.path()}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("[0] mlp on 2 ranks, 40 training and 10 test images from digits\n"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("[0] saved results/a/model.safetensors\n"), std::string::npos) << result.out;
  EXPECT_EQ(number_after(result.out, "test accuracy "), 100) << result.out;
  for (const char* file :
       {"results/a/model.safetensors", "traces/b/trace.json", "logs/rank-0.log", "logs/rank-1.log"}) {
    EXPECT_TRUE(std::filesystem::exists(user.path() + "/" + file)) << file;
  }
  const auto nowhere = run_example("mnist", {}, {{"BUILD_WORKING_DIRECTORY", user.path() + "/gone"}});
  EXPECT_EQ(nowhere.err,
            "BUILD_WORKING_DIRECTORY: cannot enter '" + user.path() + "/gone': No such file or directory\n");
  EXPECT_EQ(nowhere.status, 2);
}

TEST(MnistExample, SingleStepTrainingCompletes) {
  const TemporaryFolder folder;
  write_small_data(folder.path());
  for (const std::string ranks : {"1", "2"}) {
    const auto result = run_example("mnist", {"--nproc", ranks, "--data", folder.path(), "--batch-size", "20",
                                              "--max-steps", "1", "--lr", "0", "--out", folder.path()});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find(" over all ranks; 1 step\n"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(" % after 1 step\nsaved "), std::string::npos)
        << result.out;  // without the overlap report, which excludes the first step
  }
}

TEST(MnistExample, OutputWithoutTerminalHasNoEscapeSequences) {
  const TemporaryFolder folder;
  write_small_data(folder.path());
  const Arguments arguments = {"--nproc",  "2", "--data",      folder.path(), "--batch-size", "4",
                               "--epochs", "2", "--max-steps", "8",           "--out",        folder.path()};
  const auto result = run_example("mnist", arguments, {{"TERM", "xterm"}});
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find('\r'), std::string::npos);
  EXPECT_NE(result.out.find("\nepoch 2  step 8/8  loss "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" images/s  0:00 left\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nepoch 1: loss "), std::string::npos) << result.out;
}

TEST(MnistExample, TerminalProgressLineIsRedrawn) {
  const TemporaryFolder folder;
  write_small_data(folder.path());
  const Arguments command = example_command("mnist", {"--nproc", "2", "--data", folder.path(), "--batch-size", "4",
                                                      "--max-steps", "8", "--out", folder.path()});
  Subprocess colourful(command, {{"TERM", "xterm"}, {"NO_COLOR", ""}}, Subprocess::Output::kTerminal);
  const auto redrawn = colourful.wait();
  EXPECT_EQ(redrawn.status, 0) << redrawn.out;
  EXPECT_NE(redrawn.out.find("\r\x1b[K[====================]  epoch 2  step 8/8  loss "), std::string::npos)
      << redrawn.out;
  EXPECT_NE(redrawn.out.find(" images/s  0:00 left\r\x1b[Kepoch 2: loss "), std::string::npos) << redrawn.out;
  for (const Variables& variables : {Variables{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, Variables{{"TERM", "dumb"}}}) {
    Subprocess plain(command, variables, Subprocess::Output::kTerminal);
    const auto result = plain.wait();
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("\nepoch 2  step 8/8  loss "), std::string::npos) << result.out;
  }
}

}  // namespace
