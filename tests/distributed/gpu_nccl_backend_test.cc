// An NCCL backend alone: timeouts, aborts and lifetimes.
//
// Two backends, each with its own thread and GPU; NcclBackendOf1 has one. NcclBackendEmulated needs the emulated GPU.
// tools/gpu_checks selects tests by these names.
#include <tandem/distributed/backends/nccl/nccl_backend.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::error_text;
using Clock = NcclBackend::Clock;
using Floats = std::vector<float>;

/// A one-time event with a bounded wait, so that a failing rank does not block the other.
class Signal {
 public:
  void set() { happened_.set_value(); }
  bool wait(std::chrono::milliseconds limit = 20s) { return future_.wait_for(limit) == std::future_status::ready; }

 private:
  std::promise<void> happened_;
  const std::shared_future<void> future_{happened_.get_future()};
};

/// Arguments of a backend's on_failure calls.
class Reported {
 public:
  void add(const std::string& reason) {
    std::lock_guard lock(mutex_);
    reasons_.push_back(reason);
    changed_.notify_all();
  }
  /// Waits for the first reason.
  std::string first() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return !reasons_.empty(); }) ? reasons_[0] : "nothing";
  }
  size_t count() {
    std::lock_guard lock(mutex_);
    return reasons_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> reasons_;
};

NcclBackend::AgreedTime agreed_at(Clock::time_point when) {
  return std::make_shared<NcclBackend::AgreedTime::element_type>(when);
}

struct Rank {
  int rank;
  Device device;
  std::shared_ptr<FailureLatch> latch = std::make_shared<FailureLatch>(ProcessGroupOptions{});
  std::shared_ptr<NcclBackend> nccl = nullptr;
  std::shared_ptr<Reported> reported = std::make_shared<Reported>();
  std::function<void()> on_failure = [] {};
  int64_t seq = 0;

  Tensor ones() const { return full({4}, 1, {kFloat32, device}); }
  /// In place; with an rvalue the backend holds the last reference.
  std::shared_ptr<GpuWork> all_reduce(Tensor x, std::chrono::milliseconds timeout = 0ms,
                                      NcclBackend::AgreedTime agreed = nullptr) {
    CollectiveOperation operation;
    Collective& c = operation.collective;
    c.kind = CollectiveKind::kAllReduce;
    c.num_elements = x.numel();
    c.seq = ++seq;
    c.device = device;
    c.input = c.output = x.data_ptr();
    operation.kept = {std::move(x)};
    operation.timeout = timeout;
    return nccl->launch(operation, agreed != nullptr ? agreed : agreed_at(Clock::now()));
  }
  /// Runs a collective, which opens the connections.
  std::shared_ptr<GpuWork> all_reduce() {
    const auto work = all_reduce(ones());
    work->join();
    cuda::synchronize(device);
    return work;
  }
  /// Fails the group.
  void fail(const std::string& reason, std::chrono::milliseconds grace) {
    latch->set({.culprit = 1, .reason = reason, .is_of_gpu = true});
    nccl->abort_after(grace);
  }
  /// Waits for all streams and checks for GPU errors.
  void drain() const {
    EXPECT_EQ(cudaSetDevice(device.index), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

/// Runs f(rank) for each rank.
void run_lanes(const std::function<void(Rank&)>& f, int world_size = 2) {
  const NcclId id = NcclBackend::make_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank own{rank, Device::cuda(rank)};
      try {
        own.nccl = NcclBackend::join({.device = own.device,
                                      .rank = rank,
                                      .world_size = world_size,
                                      .job_rank = rank,
                                      .who = str("[rank ", rank, " of ", world_size, "]"),
                                      .latch = own.latch,
                                      .on_failure =
                                          [&own, reported = own.reported](const std::string& reason, int) {
                                            own.latch->set({.reason = reason, .is_of_gpu = true});
                                            own.on_failure();
                                            reported->add(reason);
                                          }},
                                     id, Clock::now() + 20s);
        f(own);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw " << error.what();
      }
      own.nccl.reset();  // before the objects that its callback uses
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Runs f(rank 0); its collectives never complete, because rank 1 starts none.
void run_with_an_absent_rank(const std::function<void(Rank&)>& prepare, const std::function<void(Rank&)>& f) {
  Signal is_over;
  run_lanes([&](Rank& r) {
    prepare(r);
    if (r.rank == 1) {
      is_over.wait();
      return;
    }
    const std::shared_ptr<Signal> at_the_end(&is_over, [](Signal* signal) { signal->set(); });
    f(r);
  });
}

/// The same with open connections; `done` is the collective that opened them.
void run_with_an_absent_rank(const std::function<void(Rank&, GpuWork& done)>& f) {
  std::array<std::shared_ptr<GpuWork>, 2> done;
  const auto of = [&](const Rank& r) -> auto& { return done[static_cast<size_t>(r.rank)]; };
  run_with_an_absent_rank([&](Rank& r) { of(r) = r.all_reduce(); }, [&](Rank& r) { f(r, *of(r)); });
}

// --- many at once ---

// The watchdog thread, and a thread that launches more collectives than the queue holds.
TEST(NcclBackend, NcclCallsAreSerialized) {
  run_lanes([](Rank& r) {
    const Tensor x = r.ones();
    std::shared_ptr<GpuWork> last;
    for (int i = 0; i < 300; ++i) last = r.all_reduce(full({1}, i, {kFloat32, r.device}));
    last->join();
    r.all_reduce(x)->join();
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
  });
}

// --- one rank ---

/// For a single rank.
std::shared_ptr<GpuWork> launch_alone(Rank& r, CollectiveKind kind, ReduceOp op, const Tensor& output,
                                      const Tensor& input, std::chrono::milliseconds timeout = 0ms,
                                      bool in_list = false) {
  CollectiveOperation operation;
  Collective& c = operation.collective;
  c.kind = kind;
  c.in_list = in_list;
  c.op = op;
  c.root = kind == CollectiveKind::kBroadcast ? 0 : -1;
  c.num_elements = input.numel();
  c.seq = ++r.seq;
  c.device = r.device;
  c.input = input.data_ptr();
  c.output = output.data_ptr();
  c.inputs = {{input.data_ptr(), c.num_elements}};
  c.outputs = {{output.data_ptr(), c.num_elements}};
  operation.kept = {output, input};
  operation.timeout = timeout;
  return r.nccl->launch(operation, agreed_at(Clock::now()));
}

TEST(NcclBackendOf1, SingleRankCollectivesCopyInputToOutput) {
  run_lanes(
      [](Rank& r) {
        const TensorOptions options{kFloat32, r.device};
        std::vector<Tensor> results;
        float value = 0;
        using Kind = CollectiveKind;
        for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter}) {
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
            const Tensor input = full({4}, ++value, options);
            results.push_back(zeros({4}, options));
            launch_alone(r, kind, op, results.back(), input)->join();
            EXPECT_EQ(input.to_vector<float>(), Floats(4, value));
          }
        }
        const Tensor in_place = full({4}, ++value, options);
        results.push_back(in_place);
        launch_alone(r, Kind::kAllReduce, ReduceOp::kMax, in_place, in_place)->join();
        r.nccl->finish();
        r.nccl.reset();
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_EQ(results[i].to_vector<float>(), Floats(4, static_cast<float>(i + 1))) << i;
        }
        r.drain();
        EXPECT_EQ(r.reported->count(), 0U);
      },
      1);
}

TEST(NcclBackendOf1, TimeoutReportsUnfinishedEarlierWork) {
  run_lanes(
      [](Rank& r) {
        r.all_reduce();
        Stall stall(cuda::current_stream(r.device));
        const Tensor x = full({4}, 1, {kFloat32, r.device});
        const auto late = launch_alone(r, CollectiveKind::kAllReduce, ReduceOp::kSum, x, x, 300ms);
        const std::string reason =
            "all_reduce #2 did not finish on cuda:0 by its deadline; it has not started because earlier "
            "work on that GPU has not finished";
        EXPECT_EQ(r.reported->first(), reason);
        EXPECT_EQ(error_text<CommError>([&] { late->join(); }), "[rank 0 of 1] " + reason);
        stall.end();
        r.nccl.reset();
        r.drain();
      },
      1);
}

// --- deadlines, and giving up ---

TEST(NcclBackend, TimeoutIsReportedOnceAndFailsWork) {
  run_with_an_absent_rank([](Rank& r, GpuWork& done) {
    const std::string reason = "all_reduce #2 did not finish on cuda:0 by its deadline";
    const auto late = r.all_reduce(r.ones(), 300ms);
    late->join();
    EXPECT_EQ(r.reported->first(), reason);
    // Using the result throws.
    EXPECT_EQ(
        error_text<CommError>([&] { cuda::synchronize(r.device); }),
        "[rank 0 of 2] " + reason +
            "\n  all_reduce #2: wait() had already returned; values computed from the result on cuda:0 are invalid");
    cuda::synchronize(r.device);  // once
    EXPECT_EQ(error_text<CommError>([&] { late->join(); }), "[rank 0 of 2] " + reason);
    EXPECT_EQ(error_text<CommError>([&] { r.all_reduce(r.ones()); }), "[rank 0 of 2] " + reason);
    done.join();  // its result is valid
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(r.reported->count(), 1U);
  });
}

TEST(NcclBackendOf1, BlockingNcclModeIsRejected) {
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  const NcclBackend::Options options{.device = Device::cuda(0),
                                     .who = "a rank",
                                     .latch = std::make_shared<FailureLatch>(ProcessGroupOptions{}),
                                     .on_failure = [](const std::string&, int) {}};
  EXPECT_THAT(error_text<ValueError>([&] { NcclBackend::join(options, NcclBackend::make_id(), Clock::now() + 20s); }),
              HasSubstr("NCCL_COMM_BLOCKING"));
  unsetenv("NCCL_COMM_BLOCKING");
}

#ifdef TANDEM_CUDA_EMULATED
// A real GPU would stay broken for later tests.
TEST(NcclBackendEmulated, GpuFailureFailsPendingAndLaterWork) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    const Tensor x = r.ones();
    const auto lost = r.all_reduce(r.ones());
    fail_gpu(r.device);
    EXPECT_THAT(r.reported->first(), HasSubstr("an illegal memory access"));
    EXPECT_THAT(error_text<BackendError>([&] { lost->join(); }), HasSubstr("an illegal memory access"));
    EXPECT_THAT(error_text<CommError>([&] { r.all_reduce(x); }), HasSubstr("an illegal memory access"));
    r.nccl.reset();
    EXPECT_EQ(r.reported->count(), 1U);
    mend_gpus();
  });
}
#endif

#ifdef TANDEM_CUDA_EMULATED
/// The first error of a single rank's backend, from its id to its end; empty without errors.
std::string first_error() {
  Rank own{0, Device::cuda(0)};
  try {
    own.nccl = NcclBackend::join(
        {.device = own.device,
         .who = "the rank",
         .latch = own.latch,
         .on_failure = [reported = own.reported](const std::string& reason, int) { reported->add(reason); }},
        NcclBackend::make_id(), Clock::now() + 20s);
    using Kind = CollectiveKind;
    for (const auto& [kind, in_list] : {std::pair{Kind::kAllReduce, false},
                                        {Kind::kBroadcast, false},
                                        {Kind::kAllGather, false},
                                        {Kind::kReduceScatter, false},
                                        {Kind::kReduceScatter, true}}) {
      launch_alone(own, kind, ReduceOp::kSum, own.ones(), own.ones(), 0ms, in_list)->join();
      cuda::synchronize(own.device);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  own.nccl.reset();
  return own.reported->count() == 0 ? "" : own.reported->first();
}

// The destruction of a backend ignores failures, because the communicator is not used any more.
TEST(NcclBackendEmulated, EveryFailureOfNcclIsReported) {
  cuda_emulation::forget_library_calls();
  ASSERT_EQ(first_error(), "");
  const std::vector<std::string> calls = cuda_emulation::library_calls();
  const std::set<std::string> names(calls.begin(), calls.end());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError",
                                              "ncclAllReduce", "ncclReduce", "ncclGroupStart", "ncclGroupEnd",
                                              "ncclCommDestroy"}));
  for (const std::string& name : names) {
    for (const int status : {ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument,
                             ncclInvalidUsage, ncclRemoteError}) {
      SCOPED_TRACE(name + ", status " + std::to_string(status));
      cuda_emulation::forget_library_calls();
      cuda_emulation::fail_library_call(name, 0, status);
      const std::string error = first_error();
      if (name == "ncclCommDestroy") {
        EXPECT_EQ(error, "");
      } else {
        EXPECT_THAT(error, HasSubstr("injected"));
      }
      cuda_emulation::forget_library_calls();
      EXPECT_EQ(first_error(), "") << "afterwards";
    }
  }
  std::cout << "injected " << 6 * names.size() << " statuses into";
  for (const std::string& name : names) std::cout << " " << name;
  std::cout << "\n";
}
#endif

TEST(NcclBackend, ReportedFailureIsNotRethrownAtSync) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    const auto late = r.all_reduce(r.ones(), 300ms);
    late->join();
    EXPECT_THAT(r.reported->first(), HasSubstr("by its deadline"));
    std::this_thread::sleep_for(300ms);  // the backend aborts after it has reported
    EXPECT_THAT(error_text<CommError>([&] { late->join(); }), HasSubstr("by its deadline"));
    EXPECT_NO_THROW(cuda::synchronize(r.device));
  });
}

// Until all ranks have started a collective, the launching thread checks deadlines.
TEST(NcclBackend, TimeoutCountsFromAgreedStart) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    const NcclBackend::AgreedTime agreed = agreed_at({});
    r.all_reduce(r.ones(), 200ms, agreed);
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(r.reported->count(), 0U);
    agreed->store(Clock::now());
    EXPECT_THAT(r.reported->first(), HasSubstr("by its deadline"));
    r.drain();
  });
}

// The aborting thread may block in NCCL; the other ranks are still notified.
TEST(NcclBackendEmulated, SlowAbortDoesNotBlockCallers) {
  setenv("TANDEM_EMULATED_ABORT_MS", "4000", 1);
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    const auto begin = Clock::now();
    r.all_reduce(r.ones(), 200ms);
    EXPECT_THAT(r.reported->first(), HasSubstr("by its deadline"));
    EXPECT_THAT(error_text<CommError>([&] { r.all_reduce(r.ones()); }), HasSubstr("by its deadline"));
    r.nccl.reset();
    EXPECT_LT(Clock::now() - begin, 3s);
    r.drain();
  });
  unsetenv("TANDEM_EMULATED_ABORT_MS");
}

TEST(NcclBackend, InFlightWorkMayFinishWithinGrace) {
  Signal given_up;
  run_lanes([&](Rank& r) {
    r.all_reduce();
    if (r.rank == 1) {
      EXPECT_TRUE(given_up.wait());
    }
    const Tensor x = r.ones();
    const auto work = r.all_reduce(x);
    work->join();
    if (r.rank == 0) {
      r.fail("a rank was lost", 10s);
      EXPECT_THAT(error_text<CommError>([&] { r.all_reduce(r.ones()); }), HasSubstr("a rank was lost"));
      std::this_thread::sleep_for(100ms);
      given_up.set();
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 2));
    work->join();
  });
}

TEST(NcclBackend, InFlightWorkIsAbortedAfterGrace) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    const auto work = r.all_reduce(r.ones());
    work->join();
    const auto begin = Clock::now();
    r.fail("a rank was lost", 300ms);
    EXPECT_THAT(error_text<CommError>([&] { cuda::synchronize(r.device); }),
                HasSubstr("a rank was lost\n  all_reduce #2"));
    const auto took = Clock::now() - begin;
    EXPECT_GE(took, 290ms);
    EXPECT_LT(took, 5s);
    EXPECT_EQ(error_text<CommError>([&] { work->join(); }), "[rank 0 of 2] a rank was lost");
  });
}

/// Aborts a backend after some time.
class GivesUp {
 public:
  GivesUp(Rank& r, std::chrono::milliseconds after)
      : thread_([this, &r, after] {
          if (!over_.wait(after)) r.fail("a rank was lost", 300ms);
        }) {}
  ~GivesUp() {
    over_.set();
    thread_.join();
  }

 private:
  Signal over_;
  std::thread thread_;
};

// The first call blocks until connections are open.
TEST(NcclBackend, AbortEndsFirstLaunch) {
  run_with_an_absent_rank([](Rank&) {},
                          [](Rank& r) {
                            const auto begin = Clock::now();
                            const GivesUp gives_up(r, 200ms);
                            EXPECT_EQ(error_text<CommError>([&] { r.all_reduce(r.ones()); }),
                                      "[rank 0 of 2] a rank was lost");
                            EXPECT_LT(Clock::now() - begin, 3s);
                            r.drain();
                          });
}

TEST(NcclBackend, TimeoutEndsFirstLaunch) {
  run_with_an_absent_rank([](Rank&) {},
                          [](Rank& r) {
                            const GivesUp at_last(r, 10s);
                            EXPECT_THAT(error_text<CommError>([&] { r.all_reduce(r.ones(), 300ms); }),
                                        HasSubstr("deadline"));
                            r.drain();
                          });
}

TEST(NcclBackend, AbortReasonIsReportedAfterDestruction) {
  run_with_an_absent_rank([](Rank& r, GpuWork& done) {
    const auto late = r.all_reduce(r.ones());
    r.fail("a rank was lost", 0ms);
    r.nccl.reset();
    EXPECT_EQ(error_text<CommError>([&] { late->join(); }), "[rank 0 of 2] a rank was lost");
    done.join();
    r.drain();
  });
}

// --- the end ---

TEST(NcclBackend, WorkMemoryOutlivesBackend) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    r.drain();
    Stall stall(cuda::current_stream(r.device));
    r.all_reduce(r.ones());  // does not start before the stall ends
    r.fail("the end", 0ms);
    std::thread ends([&] {
      std::this_thread::sleep_for(500ms);
      stall.end();
    });
    r.nccl.reset();
    ends.join();
    r.drain();
  });
}

TEST(NcclBackend, DestroyIsBoundedWhenPeersLag) {
  Signal gone;
  run_lanes([&](Rank& r) {
    r.all_reduce();
    if (r.rank == 1) {
      EXPECT_TRUE(gone.wait(15s));
      return;
    }
    r.nccl.reset();
    gone.set();
  });
}

TEST(NcclBackend, FailureCallbackMayDestroyBackend) {
  run_with_an_absent_rank([](Rank& r, GpuWork&) {
    r.on_failure = [&r] { r.nccl.reset(); };
    r.all_reduce(r.ones(), 200ms);
    EXPECT_THAT(r.reported->first(), HasSubstr("by its deadline"));
    r.drain();
  });
}

}}}}  // namespace tandem::v0::distributed
