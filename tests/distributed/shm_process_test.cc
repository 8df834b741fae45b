// Process ranks over shared memory: every kind of collective, rendezvous, and the mappings in /proc.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_checks.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/shm_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

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
  // Descriptors are closed, so only the mappings hold the memory.
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
  ShmRank self(options, {.slot_bytes = 1 << 10, .chunk_bytes = 16 << 10, .one_shot_bytes = 32 << 10});
  const BackendChecks checks(self.rank, self.size, kInt32, ReduceOp::kSum, [&](Collective& c) { self.run(c); });
  for (const int64_t count : {0, 1, 33, 500, 5000, 70001}) {
    for (int variant = 0; variant < BackendChecks::kVariants; ++variant) checks.variant(variant, count);
  }
}

TEST(ShmProcessRanks, EveryCollectiveMatchesClosedForm) {
  for (const int world_size : {2, 4}) spawn(world_size, "exchange_all_kinds");
}

TEST(ShmProcessRanks, EachRankCanWriteOnlyOwnSegment) { spawn(3, "look_at_mappings"); }

TANDEM_RANK_MAIN(meet_a_stranger) {
  if (context.rank() == 1) {
    // Sends invalid data, then no data, to the socket of rank 0.
    std::istringstream host(context.store()->get("join/met/shm/host", kLongTimeout));
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
  const Tensor x = full({3}, 2);
  group->all_reduce(x);
  expect_equal(same_bytes(x, full({3}, 4)), true, "all_reduce");
}

TEST(ShmProcessRanks, UnauthenticatedSocketClientIsIgnored) { spawn(2, "meet_a_stranger"); }

TANDEM_RANK_MAIN(come_too_late) {
  if (context.rank() == 0) {
    const std::string text = text_of<CommError>([&] {
      ProcessGroup::create(
          {.store = context.store(), .rank = 0, .world_size = 3, .timeout = std::chrono::milliseconds(300)});
    });
    context.store()->set("given up", "");
    expect_equal(text, "[rank 0 of 3] group 'default': rendezvous timed out after 0.3 s\n  missing: ranks 1 2",
                 "error");
  } else {
    context.store()->get("given up", kLongTimeout);
  }
}

TEST(ShmProcessRanks, JoinTimeoutNamesMissingRanks) { spawn(3, "come_too_late"); }

}}}}  // namespace tandem::v0::distributed
