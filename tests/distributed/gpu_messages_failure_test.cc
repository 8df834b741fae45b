// Failures of point-to-point messages with CUDA tensors: mismatches, deadlines, lost ranks.
//
// Each rank has its own GPU, except in GpuMessageFailureProcesses, where ranks may share one; GpuMessageFailureOf4
// needs four. tools/gpu_checks selects tests by these names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/death_notice.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using testing::error_text;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// The errors of the ranks; "nothing" without errors.
std::vector<std::string> errors_of(const ThreadRanks& ranks, const std::function<void(ProcessGroup&)>& f) {
  const auto errors = run_on_threads(
      ranks.world_size, [&](int rank) { return ranks.make(rank); }, f);
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

struct Case {
  const char* backend;
  const char* hosts;
};

class GpuMessageFailure : public ::testing::TestWithParam<Case> {
 protected:
  static ThreadRanks ranks(std::chrono::milliseconds timeout = 20s) {
    return {.world_size = 2, .timeout = timeout, .backend = GetParam().backend, .hosts = GetParam().hosts};
  }
};
INSTANTIATE_TEST_SUITE_P(Each, GpuMessageFailure, ::testing::Values(Case{"auto", ""}, Case{"cpu:gloo,cuda:nccl", "ab"}),
                         [](const auto& with) { return with.param.hosts[0] == 0 ? "shm" : "gloo"; });

TEST_P(GpuMessageFailure, MismatchReportsBothSides) {
  const auto texts = errors_of(ranks(), [](ProcessGroup& group) {
    connect_by_message(group);
    const Tensor x = on_gpu(group, 1, group.rank() == 0 ? 4 : 5);
    group.rank() == 0 ? group.send(x, 1, 7, {.name = "x"}) : group.recv(x, 0, 7, {.name = "x"});
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("calls do not match across ranks"));
    EXPECT_THAT(text, HasSubstr("rank 0  send float32 [4] to rank 1 tag 7, 'x'"));
    EXPECT_THAT(text, HasSubstr("rank 1  recv float32 [5] from rank 0 tag 7, 'x'"));
  }
}

TEST_P(GpuMessageFailure, DTypeMismatchWithCpuTensorReportsBothSides) {
  const auto texts = errors_of(ranks(), [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.send(on_gpu(group, 1), 1);
    } else {
      group.recv(zeros({4}, {kInt32}), 0);
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("rank 0  send float32 [4] to rank 1 tag 0"));
    EXPECT_THAT(text, HasSubstr("rank 1  recv int32 [4] from rank 0 tag 0"));
  }
}

TEST_P(GpuMessageFailure, MissingCallIsReportedAtDeadline) {
  const auto texts = errors_of(ranks(500ms), [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1);
    if (group.rank() == 0) {
      group.send(x, 1, 3);
    } else {
      std::this_thread::sleep_for(900ms);
      group.recv(x, 0, 3);
    }
  });
  EXPECT_THAT(texts[0], HasSubstr("[rank 0 of 2] send to rank 1 tag 3 timed out after 0.5 s"));
  EXPECT_THAT(texts[0], HasSubstr("4 float32 (16 B)"));
  EXPECT_THAT(texts[1], HasSubstr("send to rank 1 tag 3 timed out after 0.5 s"));
}

// All calls have matched, but the sender's data is late.
TEST_P(GpuMessageFailure, UnfinishedTransferIsReportedAtDeadline) {
  const auto texts = errors_of(ranks(500ms), [](ProcessGroup& group) {
    connect_by_message(group);
    const Tensor x = on_gpu(group, 1);
    std::optional<Stall> stall;
    if (group.rank() == 0) stall.emplace(cuda::current_stream(x.device()));
    group.rank() == 0 ? group.send(x, 1, 3) : group.recv(x, 0, 3);
    std::this_thread::sleep_for(1200ms);
    stall.reset();
    if (group.rank() == 1) std::this_thread::sleep_for(200ms);
    cuda::synchronize(x.device());  // throws on the rank that waits for the message
    group.barrier();
  });
  EXPECT_THAT(texts[0] + texts[1], HasSubstr("tag 3 did not finish on cuda:"));
  for (const std::string& text : texts) EXPECT_NE(text, "nothing");
}

TEST_P(GpuMessageFailure, AbortFailsMessagesOfAllRanks) {
  const auto texts = errors_of(ranks(), [](ProcessGroup& group) {
    connect_by_message(group);
    const Tensor x = on_gpu(group, 1);
    if (group.rank() == 0) {
      const Work work = group.isend(x, 1, 3);
      std::this_thread::sleep_for(50ms);
      group.abort("out of data");
      work.wait();
    } else {
      group.recv(x, 0, 4);
    }
  });
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("out of data"));
}

TEST_P(GpuMessageFailure, ExceptionDuringTransferEndsOtherRank) {
  const auto texts = errors_of(ranks(), [](ProcessGroup& group) {
    connect_by_message(group);
    const Tensor x = on_gpu(group, 1);
    std::optional<Stall> stall;
    if (group.rank() == 0) stall.emplace(cuda::current_stream(x.device()));
    group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
    if (group.rank() == 0) throw ValueError("out of data");
    std::this_thread::sleep_for(600ms);  // longer than the grace time of pending work
    cuda::synchronize(x.device());
    group.barrier();
  });
  EXPECT_EQ(texts[0], "out of data");
  EXPECT_THAT(texts[1], HasSubstr("rank 0: out of data"));
}

TEST_P(GpuMessageFailure, DestroyedGroupFailsPendingMessages) {
  const auto texts = errors_of(ranks(), [](ProcessGroup& group) {
    connect_by_message(group);
    const Tensor x = on_gpu(group, 1);
    if (group.rank() == 0) {
      const Work work = group.isend(x, 1, 3);  // never received
    } else {
      group.recv(x, 0, 4);
    }
  });
  EXPECT_EQ(texts[0], "nothing");
  EXPECT_THAT(texts[1], HasSubstr("destroyed its group while 1 operation was queued"));
}

#ifdef TANDEM_CUDA_EMULATED
TEST_P(GpuMessageFailure, NcclErrorsFailBothRanks) {
  for (const bool connects : {false, true}) {
    for (const char* const call : {"ncclSend", "ncclRecv", "ncclCommInitRankConfig"}) {
      if (connects && std::string(call) == "ncclCommInitRankConfig") continue;
      const auto texts = errors_of(ranks(), [&](ProcessGroup& group) {
        const Tensor x = on_gpu(group, 1);
        if (connects) connect_by_message(group);
        group.barrier();
        if (group.rank() == 0) {
          cuda_emulation::forget_library_calls();
          cuda_emulation::fail_library_call(call, 0, 2);
        }
        group.barrier();
        group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
        cuda::synchronize(x.device());
        group.barrier();
      });
      EXPECT_THAT(texts[0] + texts[1], HasSubstr(call));
      for (const std::string& text : texts) EXPECT_NE(text, "nothing") << call;
    }
  }
  cuda_emulation::forget_library_calls();
}

TEST_P(GpuMessageFailure, CommunicatorsOfFailedGroupsAreAborted) {
  cuda_emulation::forget_library_calls();
  errors_of(ranks(), [](ProcessGroup& group) {
    connect_by_message(group);
    if (group.rank() == 0) throw ValueError("out of data");
    group.recv(on_gpu(group, 1), 0);
  });
  const auto calls = cuda_emulation::library_calls();
  const auto count = [&](const char* name) { return std::count(calls.begin(), calls.end(), name); };
  EXPECT_EQ(count("ncclCommInitRankConfig"), 2);
  EXPECT_EQ(count("ncclCommAbort") + count("ncclCommDestroy"), 2);
}
#endif

// Ranks 2 and 3 exchange no messages with the failed ones.
TEST(GpuMessageFailureOf4, MismatchIsReportedOnAllRanks) {
  const auto texts = errors_of({.world_size = 4, .backend = "auto"}, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 1, 4 + group.rank());
    if (group.rank() == 0) group.send(x, 1);
    if (group.rank() == 1) group.recv(x, 0);
    if (group.rank() >= 2) {
      const Tensor y = on_gpu(group, 1);
      for (int i = 0; i < 1000000; ++i) group.rank() == 2 ? group.send(y, 3) : group.recv(y, 2);
    }
  });
  for (const std::string& text : texts) EXPECT_NE(text, "nothing");
  EXPECT_THAT(texts[2] + texts[3], HasSubstr("calls do not match across ranks"));
}

// --- processes ---

TANDEM_RANK_MAIN(one_dies_before_its_call) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
  cuda::synchronize(x.device());
  if (context.rank() == 1) die(context);
  expect_death(context);
  const std::string text = error_text<CommError>([&] { group.send(x, 1); });
  const auto notified = Clock::now();
  write_notified(context, args.at(0), notified, text);
}

TEST(GpuMessageFailureProcesses, RankKilledBeforeItsCallIsReported) {
  const std::string notified = errors_after_death("one_dies_before_its_call");
  EXPECT_THAT(notified, HasSubstr("in time [rank 0 of 2] send to rank 1 tag 0"));
  EXPECT_THAT(notified, HasSubstr("rank 1: "));
}

TANDEM_RANK_MAIN(one_dies_during_transfer) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
  cuda::synchronize(x.device());
  if (context.rank() == 1) {
    const Stall stall(cuda::current_stream(x.device()));  // blocks the transfer on its GPU
    group.send(x, 0);
    die(context);
  }
  group.recv(x, 1);  // starts on the GPU and does not complete
  expect_death(context);
  const std::string text = error_text<CommError>([&] { cuda::synchronize(x.device()); });
  const auto notified = Clock::now();
  write_notified(context, args.at(0), notified,
                 text + "\nand then " + error_text<CommError>([&] { group.send(x, 1); }));
}

TEST(GpuMessageFailureProcesses, RankKilledDuringTransferIsReported) {
  const std::string notified = errors_after_death("one_dies_during_transfer");
  EXPECT_THAT(notified, HasSubstr("in time [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("\nand then [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("rank 1: "));
}

TANDEM_RANK_MAIN(one_dies_while_connecting) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({4}, 1, {kFloat32, gpu_of_rank(context.rank())});
  if (context.rank() == 1) {
    const Work work = group.irecv(x, 0);
    while (!context.store()->contains({"matched"})) group.progress();
    die(context);
  }
  expect_death(context);
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    context.store()->set("matched", "yes");
  });
  const std::string text = error_text<CommError>([&] {
    for (int i = 0; i < 1000000; ++i) group.send(x, 1);
  });
  const auto notified = Clock::now();
  late.join();
  drain(x.device());
  write_notified(context, args.at(0), notified, text);
}

TEST(GpuMessageFailureProcesses, RankKilledAfterConnectingIsReported) {
  const std::string notified = errors_after_death("one_dies_while_connecting");
  EXPECT_THAT(notified, HasSubstr("in time [rank 0 of 2]"));
  EXPECT_THAT(notified, HasSubstr("rank 1: "));
}

}}}}  // namespace tandem::v0::distributed
