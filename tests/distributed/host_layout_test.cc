#include <tandem/distributed/rendezvous/host_layout.h>

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Hosts = std::vector<std::vector<int>>;

TEST(HostLayout, RanksAreGroupedByHostId) {
  EXPECT_EQ(group_by_host({"x"}).hosts, (Hosts{{0}}));
  EXPECT_EQ(group_by_host({"x", "x", "x"}).hosts, (Hosts{{0, 1, 2}}));
  EXPECT_EQ(group_by_host({"x", "y", "x", "y", "y", "z"}).hosts, (Hosts{{0, 2}, {1, 3, 4}, {5}}));
}

TEST(HostLayout, MapsRanksToHostAndLocalRank) {
  const HostLayout layout = group_by_host({"x", "y", "x", "y", "y", "z"});
  const int hosts[] = {0, 1, 0, 1, 1, 2};
  const int places[] = {0, 0, 1, 1, 2, 0};
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(layout.host_of(rank), hosts[rank]);
    EXPECT_EQ(layout.local_rank(rank), places[rank]);
  }
  EXPECT_FALSE(layout.is_even());
  EXPECT_TRUE(group_by_host({"x", "y", "y", "x"}).is_even());
}

TEST(HostLayout, DescribeShowsHostsAndRankCounts) {
  EXPECT_EQ(group_by_host({"x", "x", "x", "x"}).describe(), "1 host x 4");
  EXPECT_EQ(group_by_host({"x", "y"}).describe(), "2 hosts x 1");
  EXPECT_EQ(group_by_host({"x", "x", "y", "y"}).describe(), "2 hosts x 2");
  EXPECT_EQ(group_by_host({"x", "x", "y"}).describe(), "2 hosts x 2 + 1");
  EXPECT_EQ(group_by_host({"x", "y", "y", "z"}).describe(), "3 hosts x 1 + 2 + 1");
}

TEST(HostLayout, LocalAndCrossGroupsKeepGlobalRanks) {
  ProcessGroupOptions options;
  options.name = "g";
  options.world_size = 4;
  options.ranks = {1, 4, 5, 7};
  const HostLayout layout = group_by_host({"x", "y", "x", "y"});
  for (int rank = 0; rank < 4; ++rank) {
    options.rank = rank;
    const ProcessGroupOptions inside = options_inside(options, layout);
    EXPECT_EQ(inside.rank, rank / 2);
    EXPECT_EQ(inside.world_size, 2);
    EXPECT_EQ(inside.ranks, rank % 2 == 0 ? (std::vector<int>{1, 5}) : (std::vector<int>{4, 7}));
    EXPECT_EQ(inside.name, rank % 2 == 0 ? "g, host of rank 1" : "g, host of rank 4");
    const ProcessGroupOptions across = options_across(options, layout);
    EXPECT_EQ(across.rank, rank % 2);
    EXPECT_EQ(across.world_size, 2);
    EXPECT_EQ(across.ranks, rank < 2 ? (std::vector<int>{1, 4}) : (std::vector<int>{5, 7}));
    EXPECT_EQ(across.name, rank < 2 ? "g, across from rank 1" : "g, across from rank 5");
  }
}

/// Runs f(options) on one thread per rank.
void on_hosts(const std::string& hosts, const std::string& backend,
              const std::function<void(const ProcessGroupOptions&)>& f) {
  const auto store = make_memory_store();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroupOptions options{store, static_cast<int>(rank), static_cast<int>(hosts.size())};
      options.thread_ranks = true;
      options.timeout = std::chrono::seconds(20);
      options.backend = backend;
      options.host_id = hosts[rank];
      f(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FindHosts, DifferentHostIdsFormSeparateHosts) {
  on_hosts("bab", "auto", [](const ProcessGroupOptions& options) {
    EXPECT_EQ(find_hosts(options).hosts, (Hosts{{0, 2}, {1}}));
  });
}

TEST(MakeBackend, SingleHostUsesSharedMemory) {
  on_hosts("xxx", "auto", [](const ProcessGroupOptions& options) {
    EXPECT_EQ(make_backend(options)->describe(), "1 host x 3: shm between threads");
  });
  on_hosts("x", "shm", [](const ProcessGroupOptions& options) {
    EXPECT_EQ(make_backend(options)->describe(), "1 host x 1: shm between threads");
  });
}

TEST(MakeBackend, ShmRejectsRanksOnSeveralHosts) {
  on_hosts("xyx", "shm", [](const ProcessGroupOptions& options) {
    try {
      make_backend(options);
      ADD_FAILURE() << "no error";
    } catch (const CommError& e) {
      EXPECT_EQ(e.what(), str("[rank ", options.rank,
                              " of 3] group 'default': the shm backend requires all ranks on one host, but they are "
                              "on 2 hosts\n  ranks 0 2\n  rank 1"));
      EXPECT_EQ(e.rank(), options.rank);
    }
  });
}

TEST(MakeBackend, UnusableBackendsAreRejected) {
  const auto error_of = [](const std::string& backend, bool thread_ranks) -> std::string {
    try {
      ProcessGroupOptions options;
      options.thread_ranks = thread_ranks;
      options.backend = backend;
      ProcessGroup::create(options);
    } catch (const ValueError& e) {
      return e.what();
    }
    return "no error";
  };
  for (const char* backend : {"ucc", "cpu:ucc,cuda:nccl", "cpu:gloo", "nccl", "cpu:,cuda:nccl"}) {
    EXPECT_EQ(error_of(backend, false), str("ProcessGroup: unknown backend '", backend,
                                            "' (expected auto, shm, gloo or mpi; with GPUs for example "
                                            "cpu:gloo,cuda:nccl)"));
  }
  for (const char* backend : {"mpi", "cpu:mpi,cuda:nccl"}) {
    EXPECT_EQ(error_of(backend, false),
              "ProcessGroup: this program is not linked with the mpi backend; link //distributed/backends/mpi (Bazel), "
              "tandem::mpi (CMake) or tandem_mpi (pkg-config)");
    EXPECT_EQ(
        error_of(backend, true),
        "ProcessGroup: backend mpi needs one process for each rank, but the ranks are threads of one process; use "
        "auto, shm or gloo");
  }
  ProcessGroupOptions mixed;
  mixed.backend = "cpu:gloo,cuda:nccl";
  EXPECT_EQ(ProcessGroup::create(mixed)->size(), 1);
}

}}}}  // namespace tandem::v0::distributed
