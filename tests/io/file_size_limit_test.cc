// A write beyond RLIMIT_FSIZE is reported as an error and does not end the process by SIGXFSZ.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>

#include <tandem/base/trace.h>
#include <tandem/base/tuning.h>
#include <tandem/io/checkpoint.h>
#include <tandem/io/event_file.h>
#include <tandem/io/npy.h>
#include <tandem/io/safetensors.h>
#include <tandem/io/state_file.h>
#include <tandem/profile/trace_file.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::testing::read_file;

namespace {

constexpr rlim_t kLimit = 4096;          // bytes; more than the test's own output
constexpr int64_t kElements = 4 * 4096;  // of one byte each: above the limit

/// Limits files to kLimit bytes, sets the default action of SIGXFSZ, calls f, prints the text of an IoError, and exits
/// with status 0.
[[noreturn]] void run_limited(const std::function<void()>& f) {
  std::signal(SIGXFSZ, SIG_DFL);
  const rlimit limit = {kLimit, kLimit};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(2);
  try {
    f();
  } catch (const td::IoError& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(0);
}

std::vector<td::TraceEvent> long_trace() {
  std::vector<td::TraceEvent> events(100);
  for (td::TraceEvent& event : events) event.name = "an event with a name";
  return events;
}

TEST(FileSizeLimit, WritersThrowIoError) {
  const td::testing::TemporaryFolder folder;
  const td::Tensor values = td::zeros({kElements}, {td::kUInt8});
  td::State state;
  state.set("values", values);
  const std::vector<std::pair<std::string, std::function<void(const std::string& path)>>> writers = {
      {"save_safetensors",
       [&](const std::string& path) {
         td::io::save_safetensors(path, {{"values", values}});
       }},
      {"save_safetensors", [&](const std::string& path) { td::io::save_state(path, state); }},
      {"save_npy", [&](const std::string& path) { td::io::save_npy(path, values); }},
      {"write_chrome_trace", [&](const std::string& path) { td::profile::write_chrome_trace(path, long_trace()); }},
      {"Tuning", [&](const std::string& path) { td::Tuning::append(path, "key", std::string(kElements, 'x')); }},
  };
  for (const auto& [op, write] : writers) {
    EXPECT_EXIT(run_limited([&, &f = write] { f(folder / "file"); }), ::testing::ExitedWithCode(0),
                op + ": cannot write '" + (folder / "file") + ".*': File too large$");
  }
}

TEST(FileSizeLimit, FailedCheckpointWarnsAndKeepsPreviousCheckpoint) {
  const td::testing::TemporaryFolder folder;
  td::io::CheckpointState small;
  small.model.set("values", td::ones({1}));
  ASSERT_TRUE(td::io::Checkpointer(folder.path()).save(1, small));
  td::io::CheckpointState large;
  large.model.set("values", td::zeros({kElements}, {td::kUInt8}));
  EXPECT_EXIT(run_limited([&] {
                if (td::io::Checkpointer(folder.path()).save(2, large)) std::_Exit(3);
              }),
              ::testing::ExitedWithCode(0), "the checkpoint of step 2 is not saved: .*: File too large");
  EXPECT_EQ(td::io::load_checkpoint(folder.path())->step, 1);
}

TEST(FileSizeLimit, EventFileFailureIsOnlyAWarning) {
  const td::testing::TemporaryFolder folder;
  EXPECT_EXIT(run_limited([&] {
                td::io::EventFile events(folder.path());
                for (int64_t step = 0; step < 9; ++step) events.add_scalar(std::string(1000, 'x'), 1, step);
              }),
              ::testing::ExitedWithCode(0), "EventFile: cannot write .*: File too large; later events are dropped");
}

}  // namespace
