// Captures and replays of collectives in which one rank fails or deviates: the others throw an error that names it, in
// time.
//
// Each rank has its own GPU, except GpuGraphFailureProcesses with two ranks, which may share one. tools/gpu_checks
// selects tests by these names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/graph_training.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{1500};
constexpr milliseconds kPrompt{4000};  // the machine may be loaded
constexpr int kBad = 1;                // the failing rank

/// Texts of the ranks' errors, and the time until the last rank other than kBad has one.
struct Ends {
  std::vector<std::string> texts;
  std::chrono::nanoseconds took{0};
};

/// Runs f(context, group, fail) until it throws a CommError; kBad calls fail() when it deviates.
Ends ends_of(int world, const std::function<void(Context&, ProcessGroup&, const std::function<void()>&)>& f,
             milliseconds timeout = kLongTimeout, const std::string& thrown = {}) {
  Ends ends;
  ends.texts.resize(static_cast<size_t>(world), "nothing");
  std::mutex mutex;
  Clock::time_point failed, last;
  const auto run_all = [&] {
    run_threads(gpus(world), [&](Context& context) {
      const auto group =
          timeout == kLongTimeout ? context.group() : context.new_group(all_ranks(context), {.timeout = timeout});
      const auto fail = [&] {
        std::lock_guard lock(mutex);
        failed = Clock::now();
      };
      std::string text = "nothing";
      try {
        f(context, *group, fail);
        cuda::synchronize(context.device());
      } catch (const CommError& error) {
        text = error.what();
      }
      std::lock_guard lock(mutex);
      ends.texts[static_cast<size_t>(context.rank())] = text;
      if (context.rank() != kBad) last = std::max(last, Clock::now());
    });
  };
  if (thrown.empty()) {
    run_all();
  } else {
    EXPECT_EQ(error_text<ValueError>(run_all), thrown);
  }
  ends.took = last - failed;
  return ends;
}

std::vector<std::string> without_bad(std::vector<std::string> texts) {
  texts.erase(texts.begin() + kBad);
  return texts;
}

class GpuGraphFailure : public ::testing::TestWithParam<int> {};

TEST_P(GpuGraphFailure, ReplayOfAnotherGraphIsReportedOnAllRanks) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    const Tensor x = full({4}, 1, {kFloat32, context.device()});
    const auto step = [&] { group.all_reduce(x, ReduceOp::kAvg, {.name = "x"}); };
    step();
    cuda::Graph first(context.device()), second(context.device());  // equal, but not the same
    first.capture(step);
    second.capture(step);
    for (int i = 0; i < 5; ++i) {
      const bool deviates = i == 3 && context.rank() == kBad;
      if (i == 3) fail();
      (deviates ? second : first).replay();
    }
  });
  EXPECT_THAT(ends.texts, Each(AllOf(HasSubstr("calls do not match across ranks"),
                                     HasSubstr("'replay of the graph with 1 collectives from #3 'x"),
                                     HasSubstr("'replay of the graph with 1 collectives from #5 'x"))));
  EXPECT_LT(ends.took, kPrompt);
}

TEST_P(GpuGraphFailure, EagerStepInsteadOfAReplayIsReportedOnAllRanks) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    const Tensor x = full({4}, 1, {kFloat32, context.device()});
    const auto step = [&] { group.all_reduce(x, ReduceOp::kAvg, {.name = "x"}); };
    step();
    cuda::Graph graph(context.device());
    graph.capture(step);
    for (int i = 0; i < 5; ++i) {
      if (i == 3) fail();
      i == 3 && context.rank() == kBad ? step() : graph.replay();
    }
  });
  EXPECT_THAT(ends.texts, Each(AllOf(HasSubstr("calls do not match across ranks"), HasSubstr("'replay of the graph"),
                                     HasSubstr("rank 1  all_reduce avg float32 [4] on a GPU, 'x'"))));
  EXPECT_LT(ends.took, kPrompt);
}

TEST_P(GpuGraphFailure, EagerStepInsteadOfACaptureIsReportedOnAllRanks) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    const Tensor x = full({4}, 1, {kFloat32, context.device()});
    const auto step = [&] { group.all_reduce(x, ReduceOp::kAvg, {.name = "x"}); };
    step();
    cuda::Graph graph(context.device());
    fail();
    context.rank() == kBad ? step() : graph.capture(step);
  });
  EXPECT_THAT(ends.texts, Each(AllOf(HasSubstr("calls do not match across ranks"), HasSubstr("'x (captured)'"),
                                     HasSubstr("rank 1  all_reduce avg float32 [4] on a GPU, 'x'"))));
  EXPECT_LT(ends.took, kPrompt);
}

TEST_P(GpuGraphFailure, RankThatStopsReplayingIsReportedAtTimeout) {
  std::mutex mutex;
  std::condition_variable changed;
  int num_ended = 0;
  const Ends ends = ends_of(
      GetParam(),
      [&](Context& context, ProcessGroup& group, const auto& fail) {
        const Tensor x = full({4}, 1, {kFloat32, context.device()});
        const auto step = [&] { group.all_reduce(x, ReduceOp::kAvg); };
        step();
        cuda::Graph graph(context.device());
        graph.capture(step);
        for (int i = 0; i < 5; ++i) {
          if (i == 3 && context.rank() == kBad) {
            fail();
            std::unique_lock lock(mutex);
            changed.wait_for(lock, kLongTimeout, [&] { return num_ended == context.world_size() - 1; });
          }
          try {
            graph.replay();
          } catch (const CommError&) {
            std::lock_guard lock(mutex);
            ++num_ended;
            changed.notify_all();
            throw;
          }
        }
      },
      kTimeout);
  EXPECT_THAT(without_bad(ends.texts), Each(AllOf(HasSubstr("timed out after 1.5 s"), HasSubstr("replay of the graph"),
                                                  HasSubstr("missing: rank 1 ("))));
  EXPECT_GE(ends.took, kTimeout - milliseconds(200));
  EXPECT_LT(ends.took, kTimeout + milliseconds(2500));
}

TEST_P(GpuGraphFailure, RankThatThrowsBetweenReplaysIsReportedPromptly) {
  const Ends ends = ends_of(
      GetParam(),
      [](Context& context, ProcessGroup& group, const auto& fail) {
        Training training(Variant::kPlain, context.device(),
                          std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group));
        training.prepare(context.rank(), 0);
        training.step();
        cuda::Graph graph(context.device());
        graph.capture([&] { training.step(); });
        for (int i = 0; i < 1000; ++i) {
          if (i == 3 && context.rank() == kBad) {
            fail();
            throw ValueError("out of data");
          }
          graph.replay();
        }
      },
      kLongTimeout, "out of data");
  EXPECT_THAT(without_bad(ends.texts), Each(HasSubstr("rank 1: ")));
  EXPECT_LT(ends.took, kPrompt);
}

// After the consistency check of a replay the other ranks have launched it.
TEST_P(GpuGraphFailure, ReplayThatThrowsOnOneRankIsReportedPromptly) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    Tensor w = ones({4}, {kFloat32, context.device()}).requires_grad_();
    const Tensor x = full({4}, 1, w.options());
    const auto step = [&] {
      mul(w, x).sum().backward();
      group.all_reduce(x, ReduceOp::kAvg);
      w.zero_grad();
    };
    step();
    cuda::Graph graph(context.device());
    graph.capture(step);
    for (int i = 0; i < 5; ++i) {
      if (i == 3 && context.rank() == kBad) {
        fail();
        w.set_grad(x);
        EXPECT_THAT(error_text<StateError>([&] { graph.replay(); }), HasSubstr("capture a new Graph"));
        return;
      }
      graph.replay();
      cuda::synchronize(context.device());
    }
  });
  EXPECT_THAT(without_bad(ends.texts), Each(HasSubstr("a replay of a cuda::Graph threw: ")));
  EXPECT_LT(ends.took, kPrompt);
}

TEST_P(GpuGraphFailure, CaptureThatThrowsWithinBackwardOnOneRankIsReportedPromptly) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    Training training(Variant::kPlain, context.device(),
                      std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group));
    training.prepare(context.rank(), 0);
    training.step();
    bool fails = true;
    const HookHandle within = training.net.w1.register_post_accumulate_grad_hook([&](const Tensor&) {
      if (context.rank() != kBad || !std::exchange(fails, false)) return;
      fail();
      throw ValueError("bad hook");
    });
    cuda::Graph graph(context.device());
    try {
      graph.capture([&] { training.step(); });
    } catch (const ValueError&) {
      training.step();  // the group has failed
    }
  });
  EXPECT_THAT(without_bad(ends.texts), Each(HasSubstr("rank 1: backward failed before all gradients were exchanged")));
  EXPECT_LT(ends.took, kPrompt);
}

TEST_P(GpuGraphFailure, CaptureThatThrowsAfterBackwardOnOneRankIsReportedOnAllRanks) {
  const Ends ends = ends_of(GetParam(), [](Context& context, ProcessGroup& group, const auto& fail) {
    Training training(Variant::kPlain, context.device(),
                      std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group));
    training.prepare(context.rank(), 0);
    training.step();
    const std::vector<float> before = training.net.w1.detach().to_vector<float>();
    cuda::Graph graph(context.device());
    const auto step = [&] {
      training.step();
      if (context.rank() != kBad) return;
      fail();
      throw ValueError("later");
    };
    try {
      graph.capture(step);
    } catch (const ValueError&) {
      training.step();
    } catch (const CommError&) {
      EXPECT_EQ(training.net.w1.detach().to_vector<float>(), before);  // the captured step was not executed
      EXPECT_THAT(error_text<StateError>([&] { graph.replay(); }), HasSubstr("without a successful capture"));
      throw;
    }
  });
  EXPECT_THAT(ends.texts,
              Each(AllOf(HasSubstr("calls do not match across ranks"), HasSubstr("'first run of the graph with "))));
  EXPECT_LT(ends.took, kPrompt);
}

// The watchdog has a deadline for launched replays.
TEST_P(GpuGraphFailure, ReplayThatIsStuckOnAGpuIsReportedAtTimeout) {
  const Ends ends = ends_of(
      GetParam(),
      [](Context& context, ProcessGroup& group, const auto& fail) {
        const Tensor x = full({4}, 1, {kFloat32, context.device()});
        const auto step = [&] { group.all_reduce(x, ReduceOp::kAvg); };
        step();
        cuda::Graph graph(context.device());
        graph.capture(step);
        cuda::synchronize(context.device());
        std::optional<Stall> stall;
        if (context.rank() == kBad) stall.emplace(cuda::current_stream(context.device()));
        if (context.rank() == kBad) fail();
        graph.replay();
        const auto until = Clock::now() + kTimeout + milliseconds(1500);
        while (Clock::now() < until) {
          if (context.rank() != kBad) cuda::synchronize(context.device());
          std::this_thread::sleep_for(milliseconds(50));
        }
      },
      kTimeout);
  EXPECT_THAT(without_bad(ends.texts), Each(AllOf(HasSubstr("graph replay #"), HasSubstr("did not finish on cuda:"),
                                                  HasSubstr("by its deadline"))));
}

std::string name_of(const ::testing::TestParamInfo<int>& world) { return "Of" + std::to_string(world.param); }

INSTANTIATE_TEST_SUITE_P(, GpuGraphFailure, ::testing::Values(2, 4), name_of);

// --- processes ---

/// kBad is killed between two replays.
TANDEM_RANK_MAIN(replay_until_one_is_killed) {
  Training training(Variant::kPlain, gpu_of_rank(context.rank()), context.group());
  training.prepare(context.rank(), 0);
  training.step();
  cuda::Graph graph(gpu_of_rank(context.rank()));
  graph.capture([&] { training.step(); });
  std::string text = "nothing";
  try {
    for (int i = 0; i < 1000000; ++i) {
      if (i == 3 && context.rank() == kBad) raise(SIGKILL);
      graph.replay();
    }
  } catch (const CommError& error) {
    text = error.peer() == kBad ? "" : error.what();
  }
  if (!text.empty()) throw StateError(text);
}

class GpuGraphFailureProcesses : public ::testing::TestWithParam<int> {};

TEST_P(GpuGraphFailureProcesses, KilledRankIsReported) {
  EXPECT_EQ(error_text<CommError>([&] { spawn(GetParam(), "replay_until_one_is_killed"); }),
            str("spawn: rank 1 of ", GetParam(), " failed (killed by SIGKILL)"));
}

INSTANTIATE_TEST_SUITE_P(, GpuGraphFailureProcesses, ::testing::Values(2, 4), name_of);

}}  // namespace tandem::distributed
