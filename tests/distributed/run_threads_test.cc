#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/rank_function.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/error_text.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using td::testing::error_text;

constexpr std::chrono::seconds kLongTimeout{100};

TEST(RunThreads, EachRankGetsOwnContext) {
  for (const int n : {1, 2, 3, 7}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
    run_threads(n, [&](Context& context) {
      const td::RankContext& own = td::RankContext::current();
      EXPECT_EQ(&Context::current(), &context);
      EXPECT_EQ(own.rank, context.rank());
      EXPECT_EQ(own.local_rank, context.rank());
      EXPECT_EQ(context.local_rank(), context.rank());
      EXPECT_EQ(own.world_size, n);
      EXPECT_EQ(own.local_world_size, n);
      EXPECT_EQ(context.world_size(), n);
      EXPECT_GE(own.num_threads, 1);
      EXPECT_LE(own.num_threads, td::available_cores());
      EXPECT_TRUE(context.device() == td::Device());
      ++seen[static_cast<size_t>(context.rank())];
    });
    for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
  }
}

TEST(RunThreads, RunsOneRankPerDevice) {
  if (td::cpu_device_count() < 3) td::set_cpu_device_count(3);
  const std::vector<td::Device> devices = {td::Device("cpu:2"), td::Device("cpu:0"), td::Device("cpu:1")};
  std::vector<uint32_t> streams(3, 99);
  run_threads(devices, [&](Context& context) {
    const td::Device device = devices[static_cast<size_t>(context.rank())];
    EXPECT_EQ(context.device(), device);
    const td::PhiloxState drawn = td::default_generator(device).reserve(1);
    EXPECT_EQ(drawn.rank, static_cast<uint32_t>(context.rank()));
    streams[static_cast<size_t>(context.rank())] = drawn.device_number;
    const td::Tensor x = td::full({3}, context.rank() + 1, {td::kFloat32, device});
    context.group()->all_reduce(x);
    EXPECT_EQ(x.device(), device);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 6));
  });
  EXPECT_EQ(streams, std::vector<uint32_t>(3, 0)) << "the rank's own device has stream 0, whichever it is";
  EXPECT_THROW(run_threads({td::Device("cpu:63")}, [](Context&) {}), td::DeviceError);
  EXPECT_THROW(run_threads(std::vector<td::Device>(), [](Context&) {}), td::ValueError);
}

// Sums of tensors on two devices by the ranks that own them: gathered and added, or reduced.
TEST(RunThreads, SumsTensorsOfDifferentDevices) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  const std::vector<td::Tensor> tensors = {td::tensor({1, 2, 3}),
                                           td::from_vector<int64_t>({4, 5, 6}, {3}, {td::kInt64, td::Device("cpu:1")})};
  const std::vector<double> sum = {5, 7, 9};
  run_threads({tensors[0].device(), tensors[1].device()}, [&](Context& context) {
    const td::Tensor& mine = tensors[static_cast<size_t>(context.rank())];
    std::vector<td::Tensor> parts = {td::empty_like(mine), td::empty_like(mine)};
    context.group()->all_gather(parts, mine);
    td::primitives::add_into(parts[1], parts[0]);  // rejects tensors on different devices
    EXPECT_EQ(parts[0].device(), mine.device());
    EXPECT_EQ(parts[0].to_vector<double>(), sum);
    const td::Tensor reduced = td::empty_like(mine);
    td::primitives::copy(mine, reduced);
    context.group()->all_reduce(reduced);
    EXPECT_EQ(reduced.device(), mine.device());
    EXPECT_EQ(reduced.to_vector<double>(), sum);
  });
}

TEST(RunThreads, RanksShareOneStore) {
  std::atomic<int64_t> sum{0};
  run_threads(4, [&](Context& context) {
    context.store()->set(std::to_string(context.rank()), std::to_string(context.rank() + 1));
    for (int r = 0; r < 4; ++r) sum += std::stoi(context.store()->get(std::to_string(r), kLongTimeout));
  });
  EXPECT_EQ(sum.load(), 4 * 10);
}

TEST(RunThreads, RethrowsRootCauseAndWakesPeers) {
  std::atomic<int> woken{0};
  const auto f = [&](Context& context) {
    if (context.rank() == 2) throw std::out_of_range("index 9 of 3");
    try {
      context.store()->get("never", kLongTimeout);
    } catch (const td::CommError& e) {
      EXPECT_STREQ(e.what(), "store: waiting for key 'never': rank 2 failed: index 9 of 3");
      ++woken;
      throw;
    }
  };
  EXPECT_EQ(error_text<std::out_of_range>([&] { run_threads(4, f); }), "index 9 of 3");
  EXPECT_EQ(woken.load(), 3);
}

TEST(RunThreads, RootCauseOverridesEarlierSecondaryFailure) {
  // As if an exception unwound through an object that aborts the group, and peers were notified of the abort first.
  std::promise<void> consequence;
  const auto f = [&](Context& context) {
    if (context.rank() == 1) {
      consequence.set_value();
      throw td::CommError("rank 0 aborted", 1, 0);
    }
    consequence.get_future().wait();
    throw std::out_of_range("index 9 of 3");
  };
  for (int i = 0; i < 20; ++i) {
    consequence = {};
    EXPECT_EQ(error_text<std::out_of_range>([&] { run_threads(2, f); }), "index 9 of 3");
  }
}

/// The error of four ranks; ranks 2 and 3 do not call `call` until it has failed on ranks 0 and 1.
std::string error_without_two_ranks(const std::function<void(ProcessGroup&)>& call) {
  std::barrier together(2);
  std::latch failed(2);
  return error_text<td::CommError>([&] {
    run_threads(4, [&](Context& context) {
      context.group()->barrier();
      if (context.rank() >= 2) return failed.wait();
      together.arrive_and_wait();
      try {
        call(*context.group());
      } catch (const td::CommError&) {
        failed.count_down();
        throw;
      }
    });
  });
}

TEST(RunThreads, TimeoutNamesAllMissingRanks) {
  const std::chrono::seconds timeout(1);
  const std::string in_collective = error_without_two_ranks(
      [&](ProcessGroup& g) { g.all_reduce(td::zeros({3}), ReduceOp::kSum, {.timeout = timeout}); });
  EXPECT_TRUE(in_collective.starts_with(
      "ranks 2, 3 of 4 did not take part in all_reduce (collective 2) within 1.0 s; waiting: ranks 0, 1\n[rank "))
      << in_collective;
  EXPECT_NE(in_collective.find(" of 4] all_reduce #2 timed out after 1.0 s\n  3 float32 (12 B), shm\n"),
            std::string::npos)
      << in_collective;
  const std::string in_barrier =
      error_without_two_ranks([&](ProcessGroup& g) { g.monitored_barrier({.timeout = timeout}); });
  EXPECT_TRUE(in_barrier.starts_with(
      "ranks 2, 3 of 4 did not take part in monitored_barrier 1 within 1.0 s; waiting: ranks 0, 1\n[rank "))
      << in_barrier;
  EXPECT_TRUE(in_barrier.ends_with(
      " of 4] monitored_barrier #1 timed out after 1.0 s\n  arrived: ranks 0 1\n  missing: rank 2, rank 3"))
      << in_barrier;
  const std::string in_message =
      error_without_two_ranks([&](ProcessGroup& g) { g.recv(td::zeros({3}), 3, 7, {.timeout = timeout}); });
  EXPECT_TRUE(
      in_message.starts_with("rank 3 of 4 did not take part in recv from rank 3 tag 7 within 1.0 s; waiting: rank "))
      << in_message;
}

TEST(RunThreads, JoinTimeoutNamesMissingRank) {
  std::latch failed(2);
  const ThreadJobResult result =
      run_thread_ranks(std::vector<td::Device>(3), std::chrono::seconds(1), [&](Context& context) {
        if (context.rank() == 2) return failed.wait();
        try {
          context.group();
        } catch (const td::CommError&) {
          failed.count_down();
          throw;
        }
      });
  EXPECT_TRUE(result.text.starts_with(
      "rank 2 of 3 did not take part in joining group 'default' within 1.0 s; waiting: ranks 0, 1\n[rank "))
      << result.text;
}

TEST(RunThreads, ExceptionOfMissingRankOverridesTimeout) {
  std::latch failed(1);
  const auto f = [&](Context& context) {
    context.group()->barrier();
    if (context.rank() == 1) {
      failed.wait();
      throw std::out_of_range("index 9 of 3");
    }
    try {
      context.group()->barrier({.timeout = std::chrono::milliseconds(100)});
    } catch (const td::CommError& e) {
      EXPECT_EQ(e.peer(), 1);
      failed.count_down();
      throw;
    }
  };
  EXPECT_EQ(error_text<std::out_of_range>([&] { run_threads(2, f); }), "index 9 of 3");
}

TEST(RunThreads, AnnouncedFailureIsThrown) {
  const auto f = [](Context& context) {
    if (context.rank() == 1) {
      context.store()->announce_failure(1, "gave up");
    } else {
      context.store()->get("never", kLongTimeout);
    }
  };
  EXPECT_EQ(error_text<td::CommError>([&] { run_threads(2, f); }),
            "store: waiting for key 'never': rank 1 failed: gave up");
}

TEST(RunThreads, ReturningRankIsReportedAsLeft) {
  std::promise<std::string> reported;
  run_threads(2, [&](Context& context) {
    if (context.rank() == 1) return;
    const auto handle = context.store()->on_failure(
        [&](int rank, const std::string& reason) { reported.set_value(std::to_string(rank) + " " + reason); });
    EXPECT_EQ(reported.get_future().get(), "1 left the job");
  });
}

TEST(RunThreads, StopRequestIsLocalUntilAgreed) {
  run_threads(2, [](Context& context) {
    EXPECT_FALSE(context.stop_requested());
    if (context.rank() == 1) context.request_stop();
    EXPECT_EQ(context.stop_requested(), context.rank() == 1);
    EXPECT_FALSE(context.should_stop());
    context.set_stop_agreed();
    EXPECT_TRUE(context.should_stop());
  });
  run_threads(1, [](Context& context) {
    EXPECT_FALSE(context.should_stop());
    context.request_stop();
    EXPECT_TRUE(context.should_stop());
  });
}

TEST(RunThreads, InvalidCallsAreRejected) {
  const auto nothing = [](Context&) {};
  EXPECT_EQ(error_text<td::ValueError>([&] { run_threads(0, nothing); }),
            "run_threads: expected 1 to 1024 ranks, got 0");
  EXPECT_EQ(error_text<td::ValueError>([&] { run_threads(1025, nothing); }),
            "run_threads: expected 1 to 1024 ranks, got 1025");
  EXPECT_EQ(
      error_text<td::StateError>([] { Context::current(); }),
      "Context::current: this thread is not a rank; call it in a function of launch, spawn or run_threads, or call "
      "init_process_group first");
}

}  // namespace
