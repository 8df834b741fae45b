#include <tandem/distributed/rendezvous/file_store.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;
using file_log::Record;
using file_log::RecordKind;
using td::testing::error_text;
using td::testing::read_file;
using td::testing::TemporaryFolder;
using td::testing::write_file;

/// Runs f in a child process, then kills the child.
template <class F>
void in_killed_process(F&& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    f();
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(FileStore, TruncatedLogYieldsAllCompleteRecords) {
  const std::vector<Record> records = {
      {RecordKind::kSet, "key", std::string("a\0b", 3)}, {RecordKind::kDelete, "", ""}, {RecordKind::kEnd, "1", "Fx"}};
  std::string bytes;
  std::vector<size_t> ends;
  for (const Record& record : records) {
    bytes += file_log::encode(record);
    ends.push_back(bytes.size());
  }
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    std::vector<Record> found;
    const size_t whole =
        file_log::parse(std::string_view(bytes).substr(0, cut), [&](const Record& record) { found.push_back(record); });
    size_t expected = 0;
    while (expected < ends.size() && ends[expected] <= cut) ++expected;
    ASSERT_EQ(found.size(), expected) << cut;
    EXPECT_EQ(whole, expected == 0 ? 0 : ends[expected - 1]);
    for (size_t i = 0; i < expected; ++i) {
      EXPECT_EQ(found[i].kind, records[i].kind);
      EXPECT_EQ(found[i].key, records[i].key);
      EXPECT_EQ(found[i].value, records[i].value);
    }
  }
}

TEST(FileStore, CorruptByteEndsLogParsing) {
  const std::string first = file_log::encode({RecordKind::kSet, "first", "1"});
  const std::string second = file_log::encode({RecordKind::kSet, "second", "2"});
  for (size_t at = 0; at < second.size(); ++at) {
    std::string bytes = first + second;
    bytes[first.size() + at] = static_cast<char>(bytes[first.size() + at] ^ 0x41);
    int records = 0;
    EXPECT_EQ(file_log::parse(bytes, [&](const Record&) { ++records; }), first.size()) << at;
    EXPECT_EQ(records, 1);
  }
}

TEST(FileStore, TornTailIsDiscardedByNextWriter) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path);
  store->set("key", "1");
  const std::string torn = file_log::encode({RecordKind::kSet, "torn", std::string(100, 'x')});
  for (const size_t length : {size_t{1}, size_t{23}, size_t{24}, size_t{60}, torn.size() - 1}) {
    const std::string whole = read_file(path);
    write_file(path, whole + torn.substr(0, length));
    EXPECT_EQ(store->get("key", 20s), "1");
    EXPECT_FALSE(store->contains({"torn"}));
    const auto late = make_file_store(path);
    EXPECT_EQ(late->get("key", 20s), "1");
    late->set("after", std::to_string(length));
    EXPECT_EQ(store->get("after", 20s), std::to_string(length));
    EXPECT_EQ(read_file(path).substr(0, whole.size()), whole);
    EXPECT_FALSE(make_file_store(path)->contains({"torn"}));
  }
}

TEST(FileStore, KilledWriterReleasesItsLock) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path);
  in_killed_process([&] {
    const int fd = open(path.c_str(), O_RDWR);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) _exit(1);
    const std::string torn = file_log::encode({RecordKind::kSet, "torn", "x"}).substr(0, 27);
    if (pwrite(fd, torn.data(), torn.size(), static_cast<off_t>(file_log::kMagic.size())) != 27) _exit(1);
  });
  store->set("key", "1");
  EXPECT_EQ(make_file_store(path)->get("key", 20s), "1");
}

TEST(FileStore, PartiallyWrittenHeaderLeavesFileUsable) {
  const TemporaryFolder folder;
  for (size_t length = 0; length <= file_log::kMagic.size(); ++length) {
    const std::string path = folder.write("store", std::string(file_log::kMagic.substr(0, length)));
    make_file_store(path)->set("key", "1");
    EXPECT_EQ(make_file_store(path)->get("key", 20s), "1");
  }
}

/// Simulates a process stopped in the middle of a call, until the descriptor is closed.
int hold_lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  EXPECT_EQ(fcntl(fd, F_OFD_SETLKW, &lock), 0);
  return fd;
}

TEST(FileStore, HeldLockFailsCallsAfterLockTimeout) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path, {.lock_timeout = 50ms});
  const int fd = hold_lock(path);
  EXPECT_EQ(folder.shortened(error_text<td::CommError>([&] { store->set("key", "1"); })),
            "store: cannot lock DIR/store within 0.1 s: another process holds the lock; check for stopped processes");
  EXPECT_THROW(store->get("key", 20s), td::CommError);
  close(fd);
  store->set("key", "1");
  EXPECT_EQ(store->get("key", 20s), "1");
}

TEST(FileStore, ZeroLockTimeoutWaitsForHeldLock) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path, {.lock_timeout = 0ms});
  const int fd = hold_lock(path);
  std::thread setter([&] { store->set("key", "1"); });
  std::this_thread::sleep_for(20ms);  // time to reach the lock
  close(fd);
  setter.join();
  EXPECT_EQ(store->get("key", 20s), "1");
}

TEST(FileStore, AnnounceFailureLimitsLockWaitToTwoSeconds) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path, {.lock_timeout = 120s});
  const td::HookHandle watch =
      store->on_failure([](int, const std::string&) {});  // starts a thread that also waits for the lock
  const int fd = hold_lock(path);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(folder.shortened(error_text<td::CommError>([&] { store->announce_failure(0, "no disk"); })),
            "store: cannot lock DIR/store within 2.0 s: another process holds the lock; check for stopped processes");
  store->leave(0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  close(fd);
}

TEST(FileStore, ConcurrentProcessesShareKeysAndCounters) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const auto store = make_file_store(path);
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto own = make_file_store(path);
      for (int i = 0; i < 25; ++i) own->add("sum", child + 1);
      own->set("child " + std::to_string(child), std::string(100000, 'x'));
      _exit(0);
    }
    children.push_back(pid);
  }
  for (int child = 0; child < 4; ++child) {
    EXPECT_EQ(store->get("child " + std::to_string(child), 60s), std::string(100000, 'x'));
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(store->add("sum", 0), 250);
}

TEST(FileStore, LastLeavingRankRemovesFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "store";
  const FileStoreOptions options{.world_size = 2};
  const auto zero = make_file_store(path, options);
  const auto one = make_file_store(path, options);
  zero->set("key", "1");
  zero->leave(0);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(one->get("key", 20s), "1");
  one->leave(1);
  EXPECT_FALSE(std::filesystem::exists(path));
  // A later job sees none of its keys.
  EXPECT_EQ(make_file_store(path, options)->num_keys(), 0);
}

TEST(FileStore, ForeignFilesAndInvalidPathsAreRejected) {
  const TemporaryFolder folder;
  const std::string path = folder.write("data", std::string("something else"));
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { make_file_store(path); })),
            "store: DIR/data is not a tandem store");
  EXPECT_EQ(read_file(path), "something else");
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { make_file_store(folder / "no/store"); })),
            "store: cannot open DIR/no/store: No such file or directory");
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { make_file_store(folder.path()); })),
            "store: cannot open DIR: Is a directory");
  EXPECT_THROW(make_file_store(""), td::ValueError);
}

TEST(FileStore, FifoIsRejected) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { make_file_store(folder / "fifo"); })),
            "store: 'DIR/fifo' is a FIFO, not a regular file");
}

TEST(FileStore, RecordBeyondFileSizeLimitIsRejected) {
  const TemporaryFolder folder;
  const auto set_beyond_limit = [&] {
    const rlimit limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(2);
    const auto store = make_file_store(folder / "store");
    try {
      store->set("key", std::string(2000, 'x'));
    } catch (const td::IoError& error) {
      store->set("key", "short");  // the incomplete record is removed
      std::_Exit(std::string(error.what()).ends_with("/store: File too large") ? 0 : 3);
    }
    std::_Exit(4);
  };
  EXPECT_EXIT(set_beyond_limit(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(make_file_store(folder / "store")->get("key", 20s), "short");
}

}  // namespace
