#include <csignal>

#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;

/// Flags of a long training with short epochs on two ranks.
Arguments training(const std::string& data, const std::string& out) {
  return {"--nproc", "2", "--epochs", "1000000", "--batch-size", "4", "--data", data, "--out", out};
}

/// The ranks of a launcher: its children, without its guard process.
std::vector<pid_t> ranks_of(pid_t launcher) {
  const std::string number = std::to_string(launcher);
  std::ifstream in("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> found;
  for (pid_t child = 0; in >> child;) {
    std::string name;
    std::ifstream("/proc/" + std::to_string(child) + "/comm") >> name;
    if (name != "tandem-guard") found.push_back(child);
  }
  return found;
}

TEST(InterruptedTraining, SignalStopsAllRanksAfterTheSameStep) {
  const TemporaryFolder data;
  write_small_data(data.path());
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = fresh_folder("stopped");
    Subprocess job(example_command("mnist", training(data.path(), out)));
    ASSERT_TRUE(job.wait_for_output("epoch 3: "));
    job.send_signal(signal);
    const auto result = job.wait();
    EXPECT_EQ(result.status, 128 + signal);
    EXPECT_EQ(messages(result.err), "");
    const double steps = number_after(result.out, "\nstopped by a signal after step ");
    ASSERT_GE(steps, 15) << result.out;  // three epochs of five steps
    EXPECT_TRUE(result.out.ends_with("\nsaved " + out + "/model.safetensors\n")) << result.out;

    // A run of as many steps gives the same model only if every rank stopped after the same step.
    const std::string again = fresh_folder("not_stopped");
    Arguments arguments = training(data.path(), again);
    arguments.insert(arguments.end(), {"--max-steps", std::to_string(static_cast<int>(steps))});
    const auto whole = run_example("mnist", arguments);
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_TRUE(read_file(out + "/model.safetensors") == read_file(again + "/model.safetensors")) << "step " << steps;
  }
}

TEST(InterruptedTraining, SecondSignalKillsTheJob) {
  const TemporaryFolder data;
  write_small_data(data.path());
  const std::string out = fresh_folder("killed");
  // Without the second signal the test would kill the job.
  Subprocess job(example_command("mnist", training(data.path(), out)), {{"TANDEM_SHUTDOWN_TIMEOUT_S", "1000"}});
  ASSERT_TRUE(job.wait_for_output("over all ranks"));
  const std::vector<pid_t> ranks = ranks_of(job.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);  // the rank can neither finish its step nor exit
  job.send_signal(SIGINT);
  job.send_signal(SIGTERM);  // a different signal: two pending SIGINT would be delivered once
  const auto result = job.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(messages(result.err), "");
  EXPECT_EQ(read_file(out + "/model.safetensors"), "");
}

}  // namespace
