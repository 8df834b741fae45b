// Checkpoints survive a crash at any system call.
//
// This program replaces the C library's functions that change files. They count their calls. At the call selected by a
// test the process exits, or a power failure is simulated (what was not flushed to disk is lost), or the call fails.
// The tests select each call of a save in turn.

#include <tandem/io/checkpoint.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <semaphore>
#include <thread>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tensor/state_reader.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace {

enum class Fault {
  kNone,
  kDeath,       // the process exits before the call
  kShortWrite,  // the process exits during the call, after half of a write
  kPowerCut,    // power failure: files that were not flushed to disk are truncated to half of their size; folders whose
                // entry was not flushed are removed; renames in a folder that was not flushed are undone
  kNoSpace,     // the call fails
};

constexpr int kDied = 42;

struct Rename {
  std::filesystem::path from, to;
  std::string replaced;  // the bytes of the replaced file; empty if there was none
};

/// The selected fault and call. Used by one thread at a time.
struct Plan {
  Fault fault = Fault::kNone;
  int at = -1;                       // index of the call
  int calls = 0;                     // number of calls so far
  std::map<int, std::string> dirty;  // path by descriptor: written, but not flushed to disk
  std::set<std::string> folders;     // created, but their entry is not flushed to disk
  std::vector<Rename> renames;       // whose folder is not flushed to disk, in order
};
Plan plan;

std::string path_of(int descriptor) {
  char path[4096];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

[[noreturn]] void lose_power(int status) {
  std::error_code ignored;
  for (const auto& [descriptor, path] : plan.dirty) {
    const auto size = std::filesystem::file_size(path, ignored);
    if (!ignored) std::filesystem::resize_file(path, size / 2, ignored);
  }
  for (; !plan.renames.empty(); plan.renames.pop_back()) {
    const Rename& last = plan.renames.back();
    ::syscall(SYS_rename, last.to.c_str(), last.from.c_str());
    if (!last.replaced.empty()) tandem::testing::write_file(last.to, last.replaced);
  }
  for (const std::string& folder : plan.folders) std::filesystem::remove_all(folder, ignored);
  ::_exit(status);
}

/// Counts a call. Returns whether the call must fail.
bool fails() {
  if (plan.fault == Fault::kNone || plan.calls++ != plan.at) return false;
  if (plan.fault == Fault::kPowerCut) lose_power(kDied);
  if (plan.fault == Fault::kNoSpace) {
    errno = ENOSPC;
    return true;
  }
  ::_exit(kDied);
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  if (plan.fault != Fault::kNone && descriptor > 2) {
    const bool now = plan.calls == plan.at;
    if (now && plan.fault == Fault::kShortWrite) {
      static_cast<void>(!::syscall(SYS_write, descriptor, data, size / 2));
      ::_exit(kDied);
    }
    if (fails()) return -1;
    plan.dirty[descriptor] = path_of(descriptor);
  }
  return ::syscall(SYS_write, descriptor, data, size);
}

/// Only recorded: power failures are simulated.
int fsync(int descriptor) {
  if (fails()) return -1;
  plan.dirty.erase(descriptor);
  const std::string folder = path_of(descriptor);
  std::erase_if(plan.folders, [&](const std::filesystem::path& path) { return path.parent_path() == folder; });
  std::erase_if(plan.renames, [&](const Rename& rename) { return rename.to.parent_path() == folder; });
  return 0;
}

int rename(const char* from, const char* to) noexcept {
  if (fails()) return -1;
  for (auto& [descriptor, path] : plan.dirty) {
    if (path == from) path = to;
  }
  if (plan.fault == Fault::kPowerCut) plan.renames.push_back({from, to, tandem::testing::read_file(to)});
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

/// Visible to the C++ library, whose create_directories calls this function.
[[gnu::visibility("default")]] int mkdir(const char* path, mode_t mode) noexcept {
  if (fails()) return -1;
  const int status = static_cast<int>(::syscall(SYS_mkdir, path, mode));
  if (plan.fault == Fault::kPowerCut && status == 0) plan.folders.insert(path);
  return status;
}

int unlink(const char* path) noexcept {
  if (fails()) return -1;
  return static_cast<int>(::syscall(SYS_unlink, path));
}

int rmdir(const char* path) noexcept {
  if (fails()) return -1;
  return static_cast<int>(::syscall(SYS_rmdir, path));
}

/// std::filesystem::remove and std::remove call this function, or unlink and rmdir.
int remove(const char* path) noexcept {
  struct stat status = {};
  if (::lstat(path, &status) != 0) return -1;
  return S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path);
}

}  // extern "C"

namespace td = tandem;
namespace fs = std::filesystem;
using td::io::Checkpointer;
using td::io::CheckpointState;

namespace {

/// The state of a rank. Two ranks have a piece of the momentum each.
CheckpointState state_of(int64_t value, int rank = 0, int num_ranks = 1) {
  CheckpointState state;
  const td::Tensor all = td::full({33}, value, {td::kInt64});
  state.model.set("fc.weight", all);
  state.shared.set("state.0.momentum_buffer", all);
  if (num_ranks == 2) {
    const td::Tensor piece = rank == 0 ? td::view_elements(all, 0, 20) : td::view_elements(all, 20, 33);
    state.shared.set("state.0.momentum_buffer", td::make_pieces({33}, rank == 0 ? 0 : 20, piece));
  }
  state.rank.set("generator.offset", value);
  return state;
}

/// The Checkpointers of one or two ranks. Each rank has a thread, but only one of them runs at a time: a barrier lets
/// the other rank run. So the order of system calls is always the same.
class Ranks {
 public:
  Ranks(std::string folder, int num_ranks, bool async)
      : folder_(std::move(folder)), num_ranks_(num_ranks), async_(async), first_(folder_, options_of(0)) {}

  /// Saves on all ranks, and returns their result.
  bool save(int64_t step, int64_t value) {
    if (num_ranks_ == 1) return save(first_, step, state_of(value));
    bool second_saved = false;
    std::thread second([&] {
      turns_[1].acquire();
      Checkpointer checkpointer(folder_, options_of(1));
      second_saved = save(checkpointer, step, state_of(value, 1, 2));
    });
    const bool saved = save(first_, step, state_of(value, 0, 2));
    turns_[1].release();
    second.join();
    EXPECT_EQ(saved, second_saved);
    return saved;
  }

 private:
  bool save(Checkpointer& checkpointer, int64_t step, const CheckpointState& state) const {
    if (!async_) return checkpointer.save(step, state);
    checkpointer.async_save(step, state);
    return checkpointer.wait();  // so that the other rank does not run at the same time as the thread of async_save
  }

  td::io::CheckpointOptions options_of(int rank) {
    return {.rank = rank, .world_size = num_ranks_, .barrier = [this, rank] {
              if (num_ranks_ == 1) return;
              turns_[1 - rank].release();
              turns_[rank].acquire();
            }};
  }

  const std::string folder_;
  const int num_ranks_;
  const bool async_;
  std::binary_semaphore turns_[2] = {std::binary_semaphore(0), std::binary_semaphore(0)};
  Checkpointer first_;
};

/// The value of the newest checkpoint; -1 if there is none.
int64_t newest_value(const std::string& folder) {
  const auto loaded = td::io::load_checkpoint(folder);
  if (!loaded) return -1;
  const auto value = loaded->state.rank.get<int64_t>("generator.offset");
  EXPECT_EQ(loaded->state.model.get<td::Tensor>("fc.weight").to_vector<int64_t>(), std::vector<int64_t>(33, value));
  const td::Tensor momentum = td::zeros({33}, {td::kInt64});
  td::StateReader reader(loaded->state.shared);
  copy_elements(reader.read_elements("state.0.momentum_buffer", {33}, td::kInt64, 0, 33), momentum);
  reader.finish("the momentum was read");
  EXPECT_EQ(momentum.to_vector<int64_t>(), std::vector<int64_t>(33, value));
  return value;
}

/// Runs f in a child process with a fault at call `at`. Returns whether f made that call.
template <class F>
bool dies(Fault fault, int at, F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    plan.fault = fault;
    plan.at = at;
    f();
    if (fault == Fault::kPowerCut) lose_power(0);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  const int code = WEXITSTATUS(status);
  EXPECT_TRUE(code == 0 || code == kDied) << code;
  return code == kDied;
}

/// A sequence of steps to save. The fault occurs while the last one is saved.
struct Scenario {
  std::vector<int64_t> steps;
  const char* name;
  int num_ranks = 1;
  bool async = false;
};
const std::vector<Scenario> kScenarios = {{{10}, "the first of a folder"},
                                          {{10, 20}, "the second"},
                                          {{10, 20, 30}, "one more than are kept"},
                                          {{10, 20, 20}, "the same step again"},
                                          {{10, 20, 20, 20}, "and again"},
                                          {{10, 20, 10}, "an earlier step again"},
                                          {{10, 20, 20}, "two ranks with pieces", 2},
                                          {{10, 20, 20}, "two ranks with pieces, by a thread", 2, true}};

void test_deaths(Fault fault) {
  for (const Scenario& scenario : kScenarios) {
    int num_deaths = 0;
    for (int at = 0;; ++at) {
      const td::testing::TemporaryFolder temporary;
      const std::string folder = temporary / "runs/first";  // created by the first Checkpointer
      const auto last = static_cast<int64_t>(scenario.steps.size()) - 1;
      if (last > 0) {  // otherwise the process that dies creates the folder
        Ranks ranks(folder, scenario.num_ranks, scenario.async);
        for (int64_t i = 0; i < last; ++i) ASSERT_TRUE(ranks.save(scenario.steps[static_cast<size_t>(i)], i));
      }
      const bool died = dies(fault, at, [&] {
        Ranks ranks(folder, scenario.num_ranks, scenario.async);
        ranks.save(scenario.steps.back(), last);
      });
      const int64_t value = newest_value(folder);
      if (died) {
        ++num_deaths;
        EXPECT_TRUE(value == last || value == last - 1) << scenario.name << ", call " << at << ": " << value;
      } else {
        EXPECT_EQ(value, last) << scenario.name;
      }
      // If `latest` exists, it names a complete checkpoint.
      const std::string latest = td::testing::read_file(folder + "/latest");
      if (!latest.empty()) {
        const std::string named = folder + "/" + latest.substr(0, latest.size() - 1);
        EXPECT_TRUE(fs::exists(named + "/manifest.json") || fs::exists(named + ".old/manifest.json"))
            << scenario.name << ", call " << at;
      }
      // The next start removes incomplete checkpoints and can save.
      Checkpointer next(folder);
      EXPECT_TRUE(next.save(99, state_of(77)));
      EXPECT_EQ(newest_value(folder), 77);
      int num_complete = 0;
      for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        EXPECT_EQ(name.find(".tmp"), std::string::npos) << scenario.name << ", call " << at << ": " << entry.path();
        num_complete += name == "manifest.json";
      }
      EXPECT_LE(num_complete, 2);
      if (!died) break;
    }
    // The files and `latest`: each is written, flushed, renamed, and its folder is flushed.
    EXPECT_GE(num_deaths, (scenario.num_ranks == 1 ? 5 : 8) * 4) << scenario.name;
  }
}

TEST(CheckpointCrash, DeathAtAnySystemCallKeepsCompleteCheckpoint) { test_deaths(Fault::kDeath); }
TEST(CheckpointCrash, DeathDuringWriteKeepsCompleteCheckpoint) { test_deaths(Fault::kShortWrite); }
TEST(CheckpointCrash, PowerLossKeepsCompleteCheckpoint) { test_deaths(Fault::kPowerCut); }

TEST(CheckpointCrash, FullDiskWarnsAndKeepsPreviousCheckpoint) {
  for (const Scenario& scenario : kScenarios) {
    std::set<bool> results;
    for (int at = 0;; ++at) {
      const td::testing::TemporaryFolder folder;
      Ranks ranks(folder.path(), scenario.num_ranks, scenario.async);
      const auto last = static_cast<int64_t>(scenario.steps.size()) - 1;
      for (int64_t i = 0; i < last; ++i) ASSERT_TRUE(ranks.save(scenario.steps[static_cast<size_t>(i)], i));
      ::testing::internal::CaptureStderr();
      plan.fault = Fault::kNoSpace;
      plan.at = at;
      const bool saved = ranks.save(scenario.steps.back(), last);
      const bool failed = plan.calls > at;
      plan = {};
      const std::string log = ::testing::internal::GetCapturedStderr();
      results.insert(saved);
      EXPECT_EQ(newest_value(folder.path()), saved ? last : last - 1) << scenario.name << ", call " << at;
      const bool warned = log.find(saved ? " is saved, but: Checkpointer: " : " is not saved: ") != std::string::npos &&
                          log.find("No space left on device") != std::string::npos;
      EXPECT_EQ(warned, failed) << scenario.name << ", call " << at << ": " << log;
      EXPECT_TRUE(failed || saved);
      if (!failed) break;
      EXPECT_TRUE(ranks.save(99, 77));
      EXPECT_EQ(newest_value(folder.path()), 77);
    }
    EXPECT_EQ(results.size(), 2u) << scenario.name;
  }
}

}  // namespace
