// Unwritable outputs are detected before the first step; outputs that become unwritable later do not lose the weights.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>

#include <tandem/io/safetensors.h>
#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;
namespace fs = std::filesystem;

const std::string kRejected = "mnist: an output cannot be written; training is not started\n  ";

/// Replaces a file by an empty folder, while a running training may write the file again at any time.
void replace_by_folder(const std::string& path) {
  do {
    fs::remove(path);
  } while (mkdir(path.c_str(), 0777) != 0 && errno == EEXIST);
}

class TrainingOutputs : public ::testing::Test {
 protected:
  TrainingOutputs() { write_small_data(data.path()); }

  Arguments training(const Arguments& more) const { return joined({"--batch-size", "4", "--data", data.path()}, more); }

  /// Expects this one error and no training, on one rank and on two.
  void expect_rejected(const Arguments& more, const std::string& reason) const {
    Arguments ranks = training(more);
    const auto one = run_example("mnist", ranks);
    EXPECT_EQ(one.err, "rank 0 of 1 failed: " + kRejected + reason + "\n");
    EXPECT_EQ(one.status, 1);
    ranks.insert(ranks.end(), {"--nproc", "2"});
    const auto two = run_example("mnist", ranks);
    EXPECT_EQ(two.err, "rank 0 of 2 failed (exit status 1): " + kRejected + reason + "\n");
    EXPECT_EQ(two.out, "");
    EXPECT_EQ(two.status, 1);
  }

  TemporaryFolder data;
  TemporaryFolder folder;
};

TEST_F(TrainingOutputs, UncreatableFoldersAreRejectedBeforeTraining) {
  const std::string file = folder.write("a_file", std::string("1"));
  fs::create_symlink("nowhere", folder / "broken");
  fs::create_symlink("loop", folder / "loop");
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--out", file}, "cannot create the folder '" + file + "': Not a directory"},
      {{"--out", file + "/a"}, "cannot create the folder '" + file + "/a': Not a directory"},
      {{"--out", folder / "broken"}, "cannot create the folder '" + (folder / "broken") + "': File exists"},
      {{"--out", folder / "loop"},
       "cannot create the folder '" + (folder / "loop") + "': Too many levels of symbolic links"},
      {{"--out", "/proc/tandem"}, "cannot create the folder '/proc/tandem': No such file or directory"},
      {{"--out", folder / "good", "--trace", file + "/b/trace.json"},
       "cannot create the folder '" + file + "/b': Not a directory"},
  };
  for (const auto& [flags, reason] : cases) expect_rejected(flags, reason);
}

TEST_F(TrainingOutputs, EveryExampleChecksOutputsBeforeTraining) {
  const std::string file = folder.write("a_file", std::string("1"));
  for (const std::string name :
       {"mnist", "resnet_cifar", "imagenet", "language_model", "gan", "diffusion", "reinforce"}) {
    const auto result = run_example(name, {"--max-steps", "1", "--batch-size", "4", "--out", file});
    EXPECT_EQ(result.err, "rank 0 of 1 failed: " + name +
                              ": an output cannot be written; training is not started\n"
                              "  cannot create the folder '" +
                              file + "': Not a directory\n");
    EXPECT_EQ(result.status, 1);
  }
}

TEST_F(TrainingOutputs, UnwritableFilesAreRejectedBeforeTraining) {
  const std::string out = folder / "out";
  for (const std::string name : {"model.safetensors", "loss.svg", "throughput.svg"}) {
    fs::create_directories(out + "/" + name);
    expect_rejected({"--out", out}, "cannot write '" + out + "/" + name + "': Is a directory");
    fs::remove(out + "/" + name);
  }
  for (const std::string name : {"events", "checkpoints"}) {
    fs::create_symlink("nowhere", out + "/" + name);
    expect_rejected({"--out", out}, "cannot create the folder '" + out + "/" + name + "': File exists");
    fs::remove(out + "/" + name);
  }
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_rejected({"--out", out, "--trace", folder / "fifo"},
                  "cannot write '" + (folder / "fifo") + "': No such device or address");
  EXPECT_TRUE(fs::is_empty(out));  // no trace of the write tests
}

TEST_F(TrainingOutputs, RelativeOutPathToFileIsRejected) {
  const std::string file = folder.write("a_file", std::string("1"));
  const auto result = run_example("mnist", training({"--out", "a_file"}), {{"BUILD_WORKING_DIRECTORY", folder.path()}});
  EXPECT_EQ(result.err, "rank 0 of 1 failed: " + kRejected + "cannot create the folder 'a_file': Not a directory\n");
  EXPECT_EQ(read_file(file), "1");
}

TEST_F(TrainingOutputs, OversizedWeightsAreRejectedBeforeTraining) {
  Arguments command = example_command("mnist", training({"--out", folder / "out"}));
  command.insert(command.begin(),
                 {"/bin/sh", "-c", "ulimit -f 16; exec \"$@\"", "sh"});  // 8 KiB, less than the weights
  const auto result = Subprocess(command).wait();
  EXPECT_EQ(result.err, "rank 0 of 1 failed: " + kRejected + "save_safetensors: cannot write '" +
                            (folder / "out/model.safetensors.trial.tmp0") + "': File too large\n");
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(fs::is_empty(folder / "out"));
}

TEST_F(TrainingOutputs, RejectedRunKeepsEarlierOutputFiles) {
  const std::string out = folder / "out";
  fs::create_directories(out);
  folder.write("out/model.safetensors", std::string("weights"));
  folder.write("out/loss.svg", std::string("chart"));
  fs::create_symlink("nowhere", out + "/checkpoints");
  expect_rejected({"--out", out}, "cannot create the folder '" + out + "/checkpoints': File exists");
  EXPECT_EQ(read_file(out + "/model.safetensors"), "weights");
  EXPECT_EQ(read_file(out + "/loss.svg"), "chart");
}

TEST_F(TrainingOutputs, UnsavableWeightsFallBackToCurrentFolder) {
  fs::create_directory(folder / "current");
  folder.write("current/mnist-model-0.safetensors", std::string("another run's"));
  const std::string out = folder / "out";
  Subprocess job(example_command("mnist", training({"--nproc", "2", "--epochs", "1000000", "--out", out})),
                 {{"BUILD_WORKING_DIRECTORY", folder / "current"}});
  ASSERT_TRUE(job.wait_for_output("epoch 2: "));
  fs::rename(out, folder / "gone");
  folder.write("out", std::string("a file"));  // a missing folder would be created again for the last checkpoint
  job.send_signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.status, 143);  // the launcher's status: 128 + SIGTERM
  const std::string kept = folder / "current/mnist-model-1.safetensors";
  EXPECT_NE(result.err.find("rank 0 of 2 failed (exit status 1): mnist: the trained weights are saved to '" + kept +
                            "', because '" + out +
                            "/model.safetensors' cannot be written\n  save_safetensors: cannot create '" + out +
                            "/model.safetensors.tmp0': Not a directory\n"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(count(result.err, " failed"), 1) << result.err;
  EXPECT_FALSE(tandem::io::load_safetensors(kept).tensors.empty());
  EXPECT_EQ(read_file(folder / "current/mnist-model-0.safetensors"), "another run's");
}

TEST_F(TrainingOutputs, WeightsFallBackToTemporaryFolder) {
  fs::create_directory(folder / "current");
  fs::create_directory(folder / "temporary");
  Subprocess job(example_command("mnist", training({"--epochs", "1000000", "--out", "out"})),
                 {{"BUILD_WORKING_DIRECTORY", folder / "current"}, {"TMPDIR", folder / "temporary"}});
  ASSERT_TRUE(job.wait_for_output("epoch 2: "));
  fs::rename(folder / "current/out", folder / "gone");
  fs::remove(folder / "current");
  job.send_signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.status, 1);
  const std::string kept = folder / "temporary/mnist-model-0.safetensors";
  EXPECT_NE(result.err.find("mnist: the trained weights are saved to '" + kept + "', because 'out/model.safetensors'"),
            std::string::npos)
      << result.err;
  EXPECT_FALSE(tandem::io::load_safetensors(kept).tensors.empty());
}

TEST_F(TrainingOutputs, FileSizeLimitWarnsAndFailsAtEnd) {
  const std::string out = folder / "out";
  fs::create_directory(folder / "temporary");
  Subprocess job(example_command("mnist", training({"--epochs", "1000000", "--save-every", "2", "--out", out})),
                 {{"BUILD_WORKING_DIRECTORY", folder.path()}, {"TMPDIR", folder / "temporary"}});
  ASSERT_TRUE(job.wait_for_output("epoch 2: "));
  const rlimit limit = {1000, RLIM_INFINITY};
  ASSERT_EQ(prlimit(job.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  ASSERT_TRUE(job.wait_for_output(": loss ", 6));  // epochs: training continues
  job.send_signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_GE(count(result.err, " is not saved: "), 2) << result.err;
  EXPECT_EQ(count(result.err, "EventFile: cannot write '"), 1) << result.err;
  EXPECT_EQ(count(result.err, "mnist: cannot write '" + out + "/loss.svg': File too large; training continues\n"), 1)
      << result.err;
  EXPECT_EQ(
      count(result.err, "mnist: the trained weights are LOST: all locations are unwritable\n  save_safetensors: "), 1)
      << result.err;
  EXPECT_TRUE(fs::exists(out + "/checkpoints/latest"));
}

TEST_F(TrainingOutputs, UnwritableChartGivesOneWarning) {
  const std::string out = folder / "out";
  Subprocess job(example_command("mnist", training({"--nproc", "2", "--epochs", "1000000", "--out", out})));
  ASSERT_TRUE(job.wait_for_output("epoch 1: "));
  replace_by_folder(out + "/loss.svg");
  ASSERT_TRUE(job.wait_for_output(": loss ", 4));
  job.send_signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(count(result.err, "mnist: cannot write '" + out + "/loss.svg': Is a directory; training continues\n"), 1)
      << result.err;
  EXPECT_NE(read_file(out + "/throughput.svg").find(">images per second, all ranks</text>"), std::string::npos);
}

TEST_F(TrainingOutputs, UnwritableTraceIsOnlyAWarning) {
  const auto result =
      run_example("mnist", training({"--max-steps", "2", "--out", folder / "out", "--trace", "/dev/full"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(
      result.err.find("write_chrome_trace: cannot write '/dev/full': No space left on device; training continues\n"),
      std::string::npos)
      << result.err;
  EXPECT_TRUE(fs::exists(folder / "out/model.safetensors"));
}

}  // namespace
