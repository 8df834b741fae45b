#include <tandem/distributed/init.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;
using td::testing::error_text;
using td::testing::TemporaryFolder;

/// Runs f(rank) on threads that are not ranks yet; rethrows the exception of the lowest rank.
void on_threads(int n, const std::function<void(int)>& f) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        f(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

int free_port() { return local_port(listen_on("127.0.0.1", 0).get()); }

/// Sum over the members of (rank in the job + 1).
void check_sum(ProcessGroup& group) {
  float expected = 0;
  for (const int rank : group.ranks()) expected += static_cast<float>(rank + 1);
  const td::Tensor t = td::full({5}, get_rank() + 1.0);
  group.all_reduce(t);
  EXPECT_EQ(t.to_vector<float>(), std::vector<float>(5, expected));
}

enum class Method { kTcp, kFile, kStore };

class InitProcessGroup : public testing::TestWithParam<Method> {
 protected:
  InitOptions options(int rank, int world_size) const {
    InitOptions options{.rank = rank, .world_size = world_size, .timeout = 20s};
    if (GetParam() == Method::kTcp) options.init_method = "tcp://127.0.0.1:" + std::to_string(port_);
    if (GetParam() == Method::kFile) options.init_method = "file://" + (folder_ / "store");
    if (GetParam() == Method::kStore) options.store = store_;
    return options;
  }

  TemporaryFolder folder_;
  std::shared_ptr<Store> store_ = make_memory_store();
  const int port_ = free_port();
};
INSTANTIATE_TEST_SUITE_P(, InitProcessGroup, testing::Values(Method::kTcp, Method::kFile, Method::kStore),
                         [](const auto& i) {
                           return i.param == Method::kTcp ? "Tcp" : i.param == Method::kFile ? "File" : "Store";
                         });

TEST_P(InitProcessGroup, ThreadsBecomeRanksUntilDestroyed) {
  for (const int n : {1, 2, 3, 4}) {
    store_ = make_memory_store();
    on_threads(n, [&](int rank) {
      EXPECT_FALSE(is_initialized());
      init_process_group(options(rank, n));
      EXPECT_TRUE(is_initialized());
      EXPECT_EQ(get_rank(), rank);
      EXPECT_EQ(get_world_size(), n);
      EXPECT_EQ(default_group()->rank(), rank);
      EXPECT_EQ(default_group()->size(), n);
      EXPECT_EQ(get_rank(default_group()), rank);
      EXPECT_EQ(get_world_size(default_group()), n);
      EXPECT_EQ(Context::current().group(), default_group());
      EXPECT_EQ(Context::current().local_rank(), rank);
      EXPECT_EQ(td::RankContext::current().rank, rank);
      EXPECT_EQ(td::RankContext::current().local_world_size, n);
      EXPECT_EQ(td::RankContext::current().num_threads, std::max(1, td::available_cores() / n));
      for (int i = 0; i < 3; ++i) check_sum(*default_group());
      destroy_process_group();
      EXPECT_FALSE(is_initialized());
      EXPECT_EQ(td::RankContext::current().rank, 0);
      EXPECT_EQ(td::RankContext::current().world_size, 1);
      EXPECT_EQ(td::RankContext::current().num_threads, 0);
    });
  }
}

TEST_P(InitProcessGroup, RanksCanReinitializeImmediately) {
  const std::vector<std::shared_ptr<Store>> stores = {make_memory_store(), make_memory_store(), make_memory_store()};
  on_threads(3, [&](int rank) {
    for (const std::shared_ptr<Store>& store : stores) {
      InitOptions own = options(rank, 3);
      if (own.store != nullptr) own.store = store;
      init_process_group(own);
      check_sum(*default_group());
      check_sum(*new_group({0, 1, 2}));
      destroy_process_group();
    }
  });
}

TEST_P(InitProcessGroup, TimeoutNamesMissingRank) {
  on_threads(2, [&](int rank) {
    InitOptions own = options(rank, 3);
    own.timeout = rank == 0 ? 300ms : 20s;
    const std::string text = error_text<td::CommError>([&] { init_process_group(own); });
    EXPECT_NE(text.find("missing: rank 2"), std::string::npos) << text;  // rank 0 notifies rank 1
    EXPECT_FALSE(is_initialized());
    EXPECT_EQ(td::RankContext::current().world_size, 1);
  });
}

TEST_P(InitProcessGroup, BarrierNamesRankThatLeft) {
  on_threads(2, [&](int rank) {
    init_process_group(options(rank, 2));
    default_group()->barrier();
    if (rank == 0) {
      const std::string text = error_text<td::CommError>([&] { default_group()->barrier(); });
      EXPECT_NE(text.find("rank 1: left the job"), std::string::npos) << text;
    }
    destroy_process_group();
  });
}

TEST_P(InitProcessGroup, SecondInitAndSecondDestroyAreErrors) {
  init_process_group(options(0, 1));
  EXPECT_EQ(error_text<td::StateError>([&] { init_process_group(options(0, 1)); }),
            "init_process_group: this thread is already rank 0 of 1; call destroy_process_group first");
  check_sum(*default_group());
  std::shared_ptr<ProcessGroup> part = new_group({0});
  destroy_process_group(part);
  EXPECT_EQ(part, nullptr);
  EXPECT_TRUE(is_initialized());
  std::shared_ptr<ProcessGroup> all = default_group();
  destroy_process_group(all);
  EXPECT_EQ(all, nullptr);
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(
      error_text<td::StateError>([] { destroy_process_group(); }),
      "Context::current: this thread is not a rank; call it in a function of launch, spawn or run_threads, or call "
      "init_process_group first");
}

TEST_P(InitProcessGroup, HeldGroupFailsAfterPeerLeaves) {
  on_threads(2, [&](int rank) {
    init_process_group(options(rank, 2));
    const std::shared_ptr<ProcessGroup> held = default_group();
    held->barrier();
    destroy_process_group();
    if (rank == 1) return;
    const std::string text = error_text<td::CommError>([&] { held->barrier(); });
    EXPECT_NE(text.find("left the job"), std::string::npos) << text;
  });
}

TEST(InitProcessGroupErrors, LaunchedRankAlreadyHasDefaultGroup) {
  run_threads(2, [](Context& context) {
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(default_group(), context.group());
    EXPECT_EQ(get_rank(), context.rank());
    EXPECT_EQ(error_text<td::StateError>([] { init_process_group(); }),
              "init_process_group: this thread is already rank " + std::to_string(context.rank()) +
                  " of 2 of launch, spawn or run_threads; use default_group()");
    EXPECT_EQ(error_text<td::StateError>([] { destroy_process_group(); }),
              "destroy_process_group: this rank was not created by init_process_group; launch, spawn and run_threads "
              "end their own ranks");
    check_sum(*default_group());
  });
}

TEST(InitProcessGroupErrors, InvalidOptionsAreRejected) {
  const auto error = [](const InitOptions& options) {
    return error_text<td::ValueError>([&] { init_process_group(options); });
  };
  const auto store = make_memory_store();
  EXPECT_EQ(error({.init_method = "http://x"}),
            "init_process_group: expected env://, tcp://host:port or file:///path, got 'http://x'");
  EXPECT_EQ(error({.store = store}), "init_process_group: store requires rank and world_size");
  EXPECT_EQ(error({.store = store, .rank = 2, .world_size = 2}), "init_process_group: rank 2 is not in [0, 2)");
  EXPECT_EQ(error({.init_method = "tcp://h:1", .store = store, .rank = 0, .world_size = 1}),
            "init_process_group: store and init_method exclude each other; set one of them");
  EXPECT_EQ(error({.init_method = "tcp://h:1"}),
            "init_process_group: 'tcp://h:1' needs rank and world_size, in the options or as '?rank=R&world_size=N'");
  EXPECT_EQ(error({.init_method = "tcp://h?rank=0&world_size=1"}),
            "init_process_group: expected 'tcp://host:port', got 'tcp://h?rank=0&world_size=1'");
  EXPECT_EQ(error({.init_method = "tcp://fd79::1:1?rank=0&world_size=1"}),
            "init_process_group: expected 'tcp://host:port', got 'tcp://fd79::1:1?rank=0&world_size=1'; put brackets "
            "around an IPv6 address: tcp://[ADDRESS]:PORT");
  EXPECT_EQ(error({.init_method = "tcp://h:x?rank=0&world_size=1"}),
            "init_process_group: the port: expected an integer from 1 to 65535, got 'x'");
  EXPECT_EQ(error({.init_method = "tcp://h:1?rank=0&world_size=1", .rank = 3}),
            "init_process_group: rank is 3, but the init_method has 0");
  EXPECT_EQ(
      error({.init_method = "file:///x?rank=0&size=1"}),
      "init_process_group: expected '?rank=R&world_size=N' at the end of the init_method, got '/x?rank=0&size=1'");
  EXPECT_EQ(error({.init_method = "file:///x?rank=-1&world_size=1"}),
            "init_process_group: rank: expected an integer from 0 to 1048576, got '-1'");
  EXPECT_EQ(error({.store = store, .rank = 0, .world_size = 1, .timeout = -1ms}),
            "init_process_group: timeout must not be negative, got -1 ms");
  EXPECT_NE(error({.backend = "mpi", .store = store, .rank = 0, .world_size = 1}).find("backend"), std::string::npos);
  EXPECT_FALSE(is_initialized());
}

// --- TANDEM_TIMEOUT_S ---

/// Sets the variable while in scope.
class TimeoutVariable {
 public:
  explicit TimeoutVariable(const char* seconds) { setenv("TANDEM_TIMEOUT_S", seconds, 1); }
  ~TimeoutVariable() { unsetenv("TANDEM_TIMEOUT_S"); }
  TimeoutVariable(const TimeoutVariable&) = delete;
  TimeoutVariable& operator=(const TimeoutVariable&) = delete;
};

TEST(InitProcessGroupTimeout, VariableOverridesArgument) {
  const TimeoutVariable variable("0.2");
  const InitOptions options{.store = make_memory_store(), .rank = 0, .world_size = 2, .timeout = 20s};
  EXPECT_EQ(error_text<td::CommError>([&] { init_process_group(options); }),
            "[rank 0 of 2] group 'default': rendezvous timed out after 0.2 s\n  missing: rank 1");
}

TEST(InitProcessGroupTimeout, ZeroMeansNoDeadline) {
  const TimeoutVariable variable("0");
  const auto store = make_memory_store();
  on_threads(2, [&](int rank) {
    const auto be_late = [&] {
      if (rank == 1) std::this_thread::sleep_for(100ms);
    };
    be_late();
    init_process_group({.store = store, .rank = rank, .world_size = 2, .timeout = 1ms});
    be_late();
    check_sum(*default_group());
    destroy_process_group();
  });
}

TEST(InitProcessGroupTimeout, InvalidVariableIsRejected) {
  for (const std::string value : {"soon", "-1", "30s"}) {
    const TimeoutVariable variable(value.c_str());
    const InitOptions options{.store = make_memory_store(), .rank = 0, .world_size = 1};
    EXPECT_EQ(error_text<td::ValueError>([&] { init_process_group(options); }),
              "TANDEM_TIMEOUT_S: expected a number of seconds, or 0 for no limit, got '" + value + "'");
    EXPECT_FALSE(is_initialized());
  }
}

TEST(InitProcessGroupErrors, StoreFileOfEarlierJobIsRejected) {
  const TemporaryFolder folder;
  const std::string method = "file://" + (folder / "store") + "?rank=1&world_size=2";
  // Left by rank 1 of a killed job.
  make_file_store(folder / "store", {.world_size = 2})->add("members/1", 1);
  EXPECT_EQ(folder.shortened(error_text<td::CommError>([&] { init_process_group({.init_method = method}); })),
            "init_process_group: rank 1 has already joined through DIR/store\n"
            "  remove the file if an earlier job left it; otherwise two processes have this rank");
}

TEST(InitProcessGroupErrors, PortInUseIsAnError) {
  const FileDescriptor taken = listen_on("127.0.0.1", 0);
  const std::string address = "127.0.0.1:" + std::to_string(local_port(taken.get()));
  EXPECT_EQ(error_text<td::IoError>(
                [&] { init_process_group({.init_method = "tcp://" + address, .rank = 0, .world_size = 2}); }),
            "store: cannot listen on " + address + ": Address already in use\n  choose a free port");
}

}  // namespace
