// Process groups with CUDA tensors: order, errors, failures.
//
// Each rank has its own GPU, except in GpuProcesses, where ranks may share one; GpuGroupOf4 needs four.
// tools/gpu_checks selects tests by these names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/death_notice.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/stopped_process.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using testing::error_text;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Clock = std::chrono::steady_clock;

// --- order ---

// Work enqueued after wait() sees the result without synchronization.
TEST(GpuGroup, WaitOrdersCurrentStreamAfterCollective) {
  run_on_gpus(2, [](ProcessGroup& group) {
    Tensor x = on_gpu(group, group.rank() + 1);
    for (int i = 0; i < 5; ++i) {
      x = mul(x, Scalar(2));
      const Work work = group.all_reduce_async(x);
      work.wait();
      x = add(x, Scalar(1));
    }
    // x <- 2 (x0 + x1) + 1
    double x0 = 1, x1 = 2;
    for (int i = 0; i < 5; ++i) x0 = x1 = 2 * (x0 + x1) + 1;
    EXPECT_EQ(x.to_vector<float>(), Floats(4, static_cast<float>(x0)));
  });
}

TEST(GpuGroupOf4, ConcurrentGpuAndCpuAllReducesComplete) {
  run_on_gpus(4, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      const bool cpu = i % 3 == 2;
      tensors.push_back(cpu ? full({3}, group.rank() + i) : on_gpu(group, group.rank() + i, 100 * i + 1));
      works.push_back(group.all_reduce_async(tensors.back()));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 12; ++i) {
      for (const float value : tensors[static_cast<size_t>(i)].to_vector<float>()) ASSERT_EQ(value, 6 + 4 * i);
    }
  });
}

TEST(GpuGroup, TimedWaitReturnsBeforePeerArrives) {
  std::promise<void> waited;
  run_on_gpus(2, [&](ProcessGroup& group) {
    const Tensor x = on_gpu(group, group.rank() + 1);
    group.all_reduce(on_gpu(group, 1));  // opens the connections
    if (group.rank() == 1) waited.get_future().wait_for(kLongTimeout);
    const Work work = group.all_reduce_async(x);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.wait(std::chrono::milliseconds(100)));
      EXPECT_FALSE(work.is_completed());
      waited.set_value();
    }
    EXPECT_TRUE(work.wait(kLongTimeout));
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 3));
  });
}

TEST(GpuGroup, CpuCollectivesOverNetworkRunConcurrentlyWithNccl) {
  ThreadRanks{.world_size = 2, .backend = "cpu:gloo,cuda:nccl", .hosts = "ab"}.run([](ProcessGroup& group) {
    const int rank = group.rank();
    for (int round = 0; round < 3; ++round) {
      const Tensor on_host = full({5}, rank + 5, {kInt32}), all = zeros({2, 4}), x = on_gpu(group, rank + round);
      std::vector<Work> works = {group.all_reduce_async(x), group.all_reduce_async(on_host, ReduceOp::kBitXor)};
      works.push_back(group.all_gather_async(all, full({4}, rank - round)));
      const Tensor y = on_gpu(group, 7 * rank);
      works.push_back(group.broadcast_async(y, 1));
      for (const Work& work : works) work.wait();
      EXPECT_EQ(x.to_vector<float>(), Floats(4, static_cast<float>(1 + 2 * round)));
      EXPECT_EQ(on_host.to_vector<int32_t>(), std::vector<int32_t>(5, 5 ^ 6));
      const auto low = static_cast<float>(-round);
      EXPECT_EQ(all.to_vector<float>(), Floats({low, low, low, low, low + 1, low + 1, low + 1, low + 1}));
      EXPECT_EQ(y.to_vector<float>(), Floats(4, 7));
    }
  });
}

// The memory of a released tensor is not reused before the collective has finished with it, which on rank 0 requires
// that rank 1 has started.
TEST(GpuGroup, DroppedTensorsLiveUntilCollectiveEnds) {
  std::promise<void> overwritten;
  run_on_gpus(2, [&](ProcessGroup& group) {
    const Tensor sum = on_gpu(group, 0);
    group.all_reduce(sum);  // opens the connections
    if (group.rank() == 1) overwritten.get_future().wait_for(kLongTimeout);
    Work work;
    {
      const Tensor input = on_gpu(group, group.rank() + 1);
      work = group.all_reduce_async(sum, input);
    }
    if (group.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the transfer has started
      std::vector<Tensor> others;
      for (int i = 0; i < 20; ++i) others.push_back(on_gpu(group, -100 - i));  // would reuse the memory
      cuda::synchronize(sum.device());
      overwritten.set_value();
    }
    work.wait();
    EXPECT_EQ(sum.to_vector<float>(), Floats(4, 3));
  });
}

// The layout of the tensors of a list may differ between ranks.
TEST(GpuGroup, ListLayoutsMayDifferBetweenRanks) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const bool together = group.rank() == 0;
    const auto list = [&](double value) {
      const Tensor all = on_gpu(group, value, 8);
      return together ? std::vector{all.slice(0, 0, 4), all.slice(0, 4, 8)}
                      : std::vector{on_gpu(group, value), on_gpu(group, value)};
    };
    const auto expect = [&](const Tensor& tensor, float value) {
      EXPECT_EQ(tensor.to_vector<float>(), Floats(4, value));
    };
    const std::vector<Tensor> gathered = list(0);
    group.all_gather(gathered, on_gpu(group, group.rank() + 1));
    expect(gathered[0], 1);
    expect(gathered[1], 2);
    const Tensor sum = on_gpu(group, 0);
    group.reduce_scatter(sum, list(group.rank() + 1));
    expect(sum, 3);
    const std::vector<Tensor> exchanged = list(0);
    group.all_to_all(exchanged, list(group.rank() + 1));
    expect(exchanged[0], 1);
    expect(exchanged[1], 2);
  });
}

TEST(GpuGroupOf4, OverlappingGroupsGiveCorrectSums) {
  run_threads({Device::cuda(0), Device::cuda(1), Device::cuda(2), Device::cuda(3)}, [](Context& context) {
    const int rank = context.rank();
    const auto half = context.new_group(rank < 2 ? std::vector{0, 1} : std::vector{2, 3});
    const auto cross = context.new_group(rank % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3});
    for (int round = 0; round < 3; ++round) {
      const Tensor x = full({5}, rank + 1, {kFloat32, context.device()});
      const Work work = half->all_reduce_async(x);
      const Tensor y = full({5}, rank + 10, {kFloat32, context.device()});
      const Work other = cross->all_reduce_async(y);
      other.wait();
      work.wait();
      context.group()->all_reduce(x);
      EXPECT_EQ(x.to_vector<float>(), Floats(5, 20));
      EXPECT_EQ(y.to_vector<float>(), Floats(5, rank % 2 == 0 ? 22.0f : 24.0f));
    }
  });
}

// --- errors ---

TEST(GpuGroup, UnsupportedTensorsAreRejectedBeforeSending) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor ints = full({2}, 1, {kInt32, Device::cuda(group.rank())});
    EXPECT_EQ(error_text<DTypeError>([&] { group.all_reduce(ints, ReduceOp::kBitXor); }),
              "all_reduce: NCCL does not support bitxor of int32; use tensors on a CPU device");
    EXPECT_EQ(error_text<DTypeError>([&] { group.all_reduce(ints.to(kInt16)); }),
              "all_reduce: NCCL does not support sum of int16; use tensors on a CPU device");
    const Tensor x = on_gpu(group, 1);
    EXPECT_THAT(error_text<DeviceError>([&] { group.all_reduce(x, full({4}, 1)); }),
                HasSubstr("all_reduce: devices differ"));
    group.all_reduce(x);
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
    const Tensor elsewhere = full({4}, 1, {kFloat32, Device::cuda(1 - group.rank())});
    EXPECT_EQ(error_text<DeviceError>([&] { group.all_reduce(elsewhere); }),
              str("all_reduce: this group uses cuda:", group.rank(), ", but a tensor is on cuda:", 1 - group.rank(),
                  "\n  a group uses one GPU per rank; create another group with new_group"));
  });
}

TEST(GpuGroup, GpuTensorOnCpuBackendIsRejected) {
  ThreadRanks{.world_size = 2, .backend = "shm"}.run([](ProcessGroup& group) {
    EXPECT_THAT(error_text<DeviceError>([&] { group.all_reduce(on_gpu(group, 1)); }),
                HasSubstr("all_reduce: the group's backend 'shm' supports CPU tensors only; use 'cpu:shm,cuda:nccl'"));
  });
}

std::vector<std::string> texts_of(const std::vector<std::exception_ptr>& errors) {
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : errors) {
    texts.emplace_back("nothing");
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      texts.back() = e.what();
    }
  }
  return texts;
}

/// Errors of the ranks and their duration; up to three attempts, because the machine may be loaded.
std::vector<std::string> notified_within_a_second(int world_size, const std::function<void(ProcessGroup&)>& f) {
  std::vector<std::string> texts;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const ThreadRanks ranks{.world_size = world_size, .backend = "auto"};
    std::atomic<int64_t> took{0};
    texts = texts_of(run_on_threads(
        world_size, [&](int rank) { return ranks.make(rank); },
        [&](ProcessGroup& group) {
          group.all_reduce(on_gpu(group, 1));  // opens the connections
          const auto begin = Clock::now();
          try {
            f(group);
          } catch (const Error&) {
            took = std::max(took.load(), std::chrono::nanoseconds(Clock::now() - begin).count());
            throw;
          }
        }));
    if (took < 1'500'000'000) return texts;
  }
  ADD_FAILURE() << "the ranks heard late";
  return texts;
}

TEST(GpuGroup, ShapeMismatchReportsBothSides) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1, group.rank() == 0 ? 4 : 5);
    group.all_reduce(x, ReduceOp::kSum, {.name = "x"});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("calls do not match across ranks"));
    EXPECT_THAT(text, HasSubstr("rank 0  all_reduce sum float32 [4] on a GPU, 'x'"));
    EXPECT_THAT(text, HasSubstr("rank 1  all_reduce sum float32 [5] on a GPU, 'x'"));
  }
}

TEST(GpuGroup, ListAgainstTensorIsReportedAsMismatch) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    const Tensor parts = on_gpu(group, 0, 8).view({2, 4});
    if (group.rank() == 0) {
      group.all_gather(parts, on_gpu(group, 1));
    } else {
      group.all_gather(std::vector{parts.slice(0, 0, 1).view({4}), parts.slice(0, 1, 2).view({4})}, on_gpu(group, 1));
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 0  all_gather float32 [4] on a GPU, "));
    EXPECT_THAT(text, HasSubstr("rank 1  all_gather float32 [4] on a GPU, in a list, "));
  }
}

TEST(GpuGroup, TransposedShapesAreReportedAsMismatch) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    group.all_reduce(on_gpu(group, 1, 6).view(group.rank() == 0 ? Shape{2, 3} : Shape{3, 2}));
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 0  all_reduce sum float32 [2, 3] on a GPU, "));
    EXPECT_THAT(text, HasSubstr("rank 1  all_reduce sum float32 [3, 2] on a GPU, "));
  }
}

TEST(GpuGroup, AllToAllSizeMismatchReportsBothSides) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    const int64_t sent = group.rank() == 0 ? 5 : 2, wanted = group.rank() == 0 ? 2 : 3;
    group.all_to_all(on_gpu(group, 0, 1 + wanted), on_gpu(group, 1, 1 + sent),
                     group.rank() == 0 ? std::vector<int64_t>{1, wanted} : std::vector<int64_t>{wanted, 1},
                     group.rank() == 0 ? std::vector<int64_t>{1, sent} : std::vector<int64_t>{sent, 1});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 0  sends float32 [5] to rank 1"));
    EXPECT_THAT(text, HasSubstr("rank 1  expects float32 [3] from rank 0"));
  }
}

TEST(GpuGroup, CpuTensorOnOneRankReportsBothSides) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    const Tensor x = group.rank() == 0 ? on_gpu(group, 1) : full({4}, 1);
    group.all_reduce(x);
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 0  all_reduce sum float32 [4] on a GPU"));
    EXPECT_THAT(text, HasSubstr("rank 1  all_reduce sum float32 [4], "));
  }
}

TEST(GpuGroupOf4, ThrowingRankIsReportedOnAllOtherRanks) {
  const auto texts = notified_within_a_second(4, [](ProcessGroup& group) {
    if (group.rank() == 2) throw ValueError("out of data");
    const Tensor x = on_gpu(group, 1);
    group.all_reduce(x);
    cuda::synchronize(x.device());
  });
  EXPECT_EQ(texts[2], "out of data");
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(texts[static_cast<size_t>(rank)], HasSubstr("rank 2: out of data")) << rank;
  }
}

// A pending collective that the others never complete does not block it.
TEST(GpuGroup, ExceptionDuringTransferEndsRanksPromptly) {
  const auto texts = notified_within_a_second(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1);
    std::optional<Stall> stall;
    if (group.rank() == 1) stall.emplace(cuda::current_stream(x.device()));
    const Work work = group.all_reduce_async(x);
    while (!work.is_completed()) std::this_thread::yield();
    if (group.rank() == 0) throw ValueError("out of data");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // longer than the grace time of pending work
    group.all_reduce(on_gpu(group, 1));
  });
  EXPECT_EQ(texts[0], "out of data");
  EXPECT_THAT(texts[1], HasSubstr("rank 0: out of data"));
}

// The first of two collectives is late on one rank, which does not start the second: only this rank is blamed.
TEST(GpuGroup, RankThatSkipsSecondCollectiveIsReported) {
  std::promise<void> over;
  const ThreadRanks ranks{.world_size = 2, .timeout = std::chrono::milliseconds(600), .backend = "auto"};
  int culprit = -1;
  const auto texts = texts_of(run_on_threads(
      2, [&](int rank) { return ranks.make(rank); },
      [&](ProcessGroup& group) {
        const Tensor x = on_gpu(group, 1);
        group.all_reduce(x);
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          group.all_reduce(x);
          over.get_future().wait_for(kLongTimeout);
          return;
        }
        const Work first = group.all_reduce_async(x), second = group.all_reduce_async(x);
        first.wait();
        try {
          second.wait();
        } catch (const CommError& error) {
          culprit = error.peer();
          over.set_value();
          throw;
        }
      }));
  EXPECT_EQ(culprit, 1);
  EXPECT_THAT(texts[0], HasSubstr("[rank 0 of 2] all_reduce #4 timed out after 0.6 s"));
  EXPECT_THAT(texts[0], HasSubstr("missing: rank 1"));
}

TEST(GpuGroup, RankArrivingAfterTimeoutIsReported) {
  const ThreadRanks ranks{.world_size = 2, .timeout = std::chrono::milliseconds(400), .backend = "auto"};
  const auto texts = texts_of(run_on_threads(
      2, [&](int rank) { return ranks.make(rank); },
      [&](ProcessGroup& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
        group.all_reduce(on_gpu(group, 1));
      }));
  EXPECT_THAT(texts[0], HasSubstr("[rank 0 of 2] all_reduce #1 timed out after 0.4 s"));
  EXPECT_THAT(texts[0], HasSubstr("missing: rank 1"));
}

// --- processes ---

TANDEM_RANK_MAIN(one_dies_on_its_gpu) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.all_reduce(x);
  if (context.rank() == 1) die(context);
  expect_death(context);
  const std::string text = error_text<CommError>([&] {
    for (int i = 0; i < 1000000; ++i) group.all_reduce(x);
  });
  const auto notified = Clock::now();
  drain(x.device());
  write_notified(context, args.at(0), notified, text);
}

TEST(GpuProcesses, KilledRankIsReportedPromptly) {
  const std::string notified = errors_after_death("one_dies_on_its_gpu");
  EXPECT_THAT(notified, HasSubstr("in time [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("rank 1: "));
}

TANDEM_RANK_MAIN(one_dies_after_its_check) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.all_reduce(x);
  cuda::synchronize(x.device());
  if (context.rank() == 1) {
    const Stall stall(cuda::current_stream(x.device()));  // blocks the transfer on its GPU
    const Work work = group.all_reduce_async(x);
    while (!work.is_completed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    die(context);
  }
  group.all_reduce(x);  // starts on the GPU and does not complete
  expect_death(context);
  const std::string text = error_text<CommError>([&] { cuda::synchronize(x.device()); });
  const auto notified = Clock::now();
  write_notified(context, args.at(0), notified,
                 text + "\nand then " + error_text<CommError>([&] { group.all_reduce(x); }));
}

TEST(GpuProcesses, RankKilledDuringTransferIsReportedPromptly) {
  const std::string notified = errors_after_death("one_dies_after_its_check");
  EXPECT_THAT(notified, HasSubstr("in time [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("\nand then [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("rank 1: "));
}

TANDEM_RANK_MAIN(both_on_one_gpu) {
  const Tensor x = full({4}, 1, {kFloat32, Device::cuda(0)});
  std::ofstream(args.at(0) + std::to_string(context.rank()))
      << error_text<DeviceError>([&] { context.group()->all_reduce(x); });
}

TEST(GpuGroup, RanksSharingOneGpuAreRejected) {
  const testing::TemporaryFolder folder;
  spawn(2, "both_on_one_gpu", {folder / ""});
  for (const char* const rank : {"0", "1"}) {
    EXPECT_THAT(testing::read_file(folder / rank), HasSubstr("group 'default': ranks 0 and 1 are both on "));
  }
}

TANDEM_RANK_MAIN(one_stops_on_its_gpu) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.all_reduce(x);
  cuda::synchronize(x.device());
  if (context.rank() == 1) {
    context.store()->set("stopped", std::to_string(getpid()));
    raise(SIGSTOP);
    return;
  }
  const pid_t other = std::stoi(context.store()->get("stopped", kLongTimeout));
  const std::string text =
      error_text<CommError>([&] { group.all_reduce(x, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(700)}); });
  drain(x.device());
  std::ofstream(args.at(0) + std::to_string(context.rank())) << text;
  context.store()->set(str("heard ", context.rank()), "yes");
  if (context.rank() != 0) return;
  context.store()->get("heard 2", kLongTimeout);
  testing::wake_when_stopped(other);
}

TANDEM_RANK_MAIN(one_stops_after_its_check) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.all_reduce(x);
  cuda::synchronize(x.device());
  if (context.rank() == 1) {
    const Stall stall(cuda::current_stream(x.device()));  // blocks the transfer on its GPU
    const Work work = group.all_reduce_async(x, ReduceOp::kSum, {.name = "x"});
    while (!work.is_completed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    context.store()->set("stopped", std::to_string(getpid()));
    raise(SIGSTOP);
    return;
  }
  group.all_reduce(x, ReduceOp::kSum, {.name = "x", .timeout = std::chrono::milliseconds(700)});  // does not block
  const pid_t other = std::stoi(context.store()->get("stopped", kLongTimeout));
  int culprit = -1;
  try {
    x.to_vector<float>();
  } catch (const CommError& error) {
    culprit = error.peer();
    std::ofstream(args.at(0) + std::to_string(context.rank())) << culprit << " " << error.what();
  }
  context.store()->set(str("heard ", context.rank()), "yes");
  if (context.rank() != 0) return;
  context.store()->get("heard 2", kLongTimeout);
  testing::wake_when_stopped(other);
}

// Without further calls on the group: copying a missing result throws the failure and names the responsible rank.
TEST(GpuGroupOf4, RankStoppedDuringTransferIsReported) {
  const testing::TemporaryFolder folder;
  spawn(3, "one_stops_after_its_check", {folder / ""});
  for (const char* const rank : {"0", "2"}) {
    const std::string text = testing::read_file(folder / rank);
    EXPECT_THAT(text, HasSubstr("1 [rank "));
    EXPECT_THAT(text, HasSubstr("all_reduce #3 did not finish on cuda:"));
    EXPECT_THAT(text, HasSubstr("no response from: rank 1 (last reached all_reduce #3 'x', "));
    EXPECT_THAT(text,
                HasSubstr("all_reduce #3: wait() had already returned; values computed from the result on cuda:"));
  }
}

TEST(GpuGroupOf4, StoppedRankIsReportedAtTimeout) {
  const testing::TemporaryFolder folder;
  spawn(3, "one_stops_on_its_gpu", {folder / ""});
  for (const char* const rank : {"0", "2"}) {
    const std::string text = testing::read_file(folder / rank);
    EXPECT_THAT(text, HasSubstr(str("[rank ", rank, " of 3] all_reduce #")));
    EXPECT_THAT(text, HasSubstr("timed out after 0.7 s"));
    EXPECT_THAT(text, HasSubstr("missing: rank 1"));
  }
}

}}}}  // namespace tandem::v0::distributed
