// Process ranks over shared memory: values, deaths, and what the kernel shows of the mappings.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/shm/shm_backend.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/shm_cases.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLong{100};

/// A file that the ranks of one test share with it.
std::string scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// In a rank's function: fails the rank, and so the test, with both values.
template <class A, class B>
void expect_equal(const A& got, const B& want, const std::string& what) {
  if (!(got == want)) throw td::StateError(td::str(what, ": got '", got, "', want '", want, "'"));
}

template <class F>
std::string comm_error_of(const F& f) {
  try {
    f();
  } catch (const td::CommError& e) {
    return e.what();
  }
  return "no CommError";
}

std::vector<double> filled(size_t n, double v) { return std::vector<double>(n, v); }

TANDEM_RANK_MAIN(exchange) {
  ProcessGroup& group = *context.group();
  const int n = group.size();
  // Through slots, whole, in slices, and with a last round that is cut short; twice, so that rings and slots are
  // reused.
  for (const int64_t count : {0, 1, 33, 4097, 70001, 500001, 2000003, 33, 2000003}) {
    const size_t size = static_cast<size_t>(count);
    const td::Tensor x = td::full({count}, group.rank() + 1);
    group.all_reduce(x);
    expect_equal(x.to_vector<double>() == filled(size, n * (n + 1) / 2), true, td::str("all_reduce ", count));
    group.all_reduce(x, ReduceOp::kAvg);
    expect_equal(x.to_vector<double>() == filled(size, n * (n + 1) / 2), true, td::str("avg ", count));

    const td::Tensor y = td::full({count}, group.rank(), {td::kInt32});
    group.broadcast(y, n - 1);
    expect_equal(y.to_vector<double>() == filled(size, n - 1), true, td::str("broadcast ", count));

    const td::Tensor all = td::zeros({n, count}, {td::kFloat16});
    group.all_gather(all, td::full({count}, 3 * group.rank(), {td::kFloat16}));
    const std::vector<double> got = all.to_vector<double>();
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != 3.0 * static_cast<double>(i / size);
    expect_equal(wrong, 0, td::str("all_gather ", count));
    group.barrier();
  }
}

TEST(ShmProcess, ClosedFormValuesForSeveralWorlds) {
  for (const int n : {1, 2, 3, 4, 7}) spawn(n, "exchange");
}

TANDEM_RANK_MAIN(look_at_mappings) {
  ProcessGroup& group = *context.group();
  group.barrier();
  int writable = 0;
  int read_only = 0;
  int doorbells = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const bool writes = line.find(" rw-s ") != std::string::npos;
    if (line.find("memfd:tandem-segment") != std::string::npos) ++(writes ? writable : read_only);
    if (line.find("memfd:tandem-doorbells") != std::string::npos) doorbells += writes;
  }
  expect_equal(writable, 1, "segments that this rank may write");
  expect_equal(read_only, group.size() - 1, "segments that it may read");
  expect_equal(doorbells, 1, "mappings of the doorbells");
  // Descriptors are closed, so nothing holds the memory but the mappings.
  int descriptors = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[256] = {};
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) < 0) continue;
    descriptors += std::strstr(target, "memfd:tandem") != nullptr;
  }
  closedir(folder);
  expect_equal(descriptors, 0, "open descriptors of shared memory");
  group.barrier();
}

TANDEM_RANK_MAIN(exchange_all_kinds) {
  const ProcessGroupOptions options = {
      .store = context.store(), .rank = context.rank(), .world_size = context.world_size(), .name = "kinds"};
  ShmRank self(options, {.slot_bytes = 1 << 10, .chunk_bytes = 16 << 10, .whole_bytes = 32 << 10});
  for (const int64_t count : {0, 1, 33, 500, 5000, 70001}) {
    for (int variant = 0; variant < kVariants; ++variant) run_variant(self, variant, count);
  }
}

TEST(ShmProcess, EveryKindHasItsValues) {
  for (const int world_size : {2, 4}) spawn(world_size, "exchange_all_kinds");
}

TEST(ShmProcess, ARankWritesOnlyItsOwnSegment) { spawn(3, "look_at_mappings"); }

TANDEM_RANK_MAIN(survive_a_kill) {
  ProcessGroup& group = *context.group();
  const td::Tensor x = td::full({1 << 20}, 1);
  group.all_reduce(x);
  const int victim = std::stoi(args.at(0));
  if (group.rank() == victim) {
    context.store()->get("all but one wait", kLong);
    raise(SIGKILL);
  }
  if (context.store()->add("waiting", 1) == group.size() - 1) context.store()->set("all but one wait", "");
  const auto begin = Clock::now();
  const std::string text = comm_error_of([&] { group.all_reduce(x); });
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::ofstream(args.at(1) + std::to_string(group.rank()))
      << text << (took < std::chrono::seconds(5) ? "" : " too late");
}

TEST(ShmProcess, AKilledRankIsNamedOnAllOthers) {
  for (const int victim : {0, 2}) {
    const std::string path = scratch(td::str("killed", victim, "_"));
    EXPECT_THROW(spawn(4, "survive_a_kill", {std::to_string(victim), path}), td::CommError);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string text = read_file(path + std::to_string(rank));
      EXPECT_EQ(text.find(td::str("[rank ", rank, " of 4] all_reduce #2 failed\n  rank ", victim, ": ")), 0u) << text;
      EXPECT_EQ(text.find("too late"), std::string::npos) << text;
    }
  }
}

TANDEM_RANK_MAIN(stop_one) {
  ProcessGroup& group = *context.group();
  group.barrier();
  context.store()->set("pid" + std::to_string(group.rank()), std::to_string(getpid()));
  if (group.rank() == 1) {
    context.store()->get("timed out", kLong);
    return;
  }
  const pid_t other = std::stoi(context.store()->get("pid1", kLong));
  kill(other, SIGSTOP);
  const td::Tensor x = td::full({100000}, 1);
  const std::string text =
      comm_error_of([&] { group.all_reduce(x, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(300)}); });
  kill(other, SIGCONT);
  context.store()->set("timed out", "");
  const std::string head =
      "[rank 0 of 2] all_reduce #2 timed out after 0.3 s\n  100000 float32 (390.6 KiB), shm\n"
      "  reached #2: ranks 0.  missing: rank 1 (last reached barrier #1, ";
  expect_equal(text.substr(0, head.size()), head, "error");
}

TEST(ShmProcess, AStoppedRankIsNamedAtTheDeadline) { spawn(2, "stop_one"); }

TANDEM_RANK_MAIN(meet_a_stranger) {
  if (context.rank() == 1) {
    // Says something else than a rank would, then nothing at all, on the socket that rank 0 listens on.
    std::istringstream host(context.store()->get("group/met/shm/host", kLong));
    std::string identity, name, token;
    host >> identity >> name >> token;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    for (const std::string words : {"hello", ""}) {
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      expect_equal(connect(fd, reinterpret_cast<sockaddr*>(&address), size), 0, "connect");
      if (!words.empty()) send(fd, words.data(), words.size(), 0);
      close(fd);
    }
  }
  const ProcessGroupOptions options = {
      .store = context.store(), .rank = context.rank(), .world_size = 2, .name = "met"};
  const auto group = ProcessGroupAccess::make(options, shm::make_shm_backend(options));
  const td::Tensor x = td::full({3}, 2);
  group->all_reduce(x);
  expect_equal(x.to_vector<double>() == filled(3, 4), true, "all_reduce");
}

TEST(ShmProcess, AStrangerAtTheSocketIsTurnedAway) { spawn(2, "meet_a_stranger"); }

TANDEM_RANK_MAIN(come_too_late) {
  if (context.rank() == 0) {
    const std::string text = comm_error_of([&] {
      ProcessGroup::create(
          {.store = context.store(), .rank = 0, .world_size = 3, .timeout = std::chrono::milliseconds(300)});
    });
    context.store()->set("given up", "");
    expect_equal(text, "[rank 0 of 3] group 'default': did not come together within 0.3 s\n  missing: ranks 1 2",
                 "error");
  } else {
    context.store()->get("given up", kLong);
  }
}

TEST(ShmProcess, JoiningNamesTheRanksThatAreMissing) { spawn(3, "come_too_late"); }

}  // namespace
