// Data-parallel training on GPUs in which one rank fails: the others throw an error that names it, in time.
//
// Each rank has its own GPU, except GpuDdpProcesses with two ranks, which may share one. tools/gpu_checks selects
// tests by these names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/stopped_process.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem::distributed { namespace {

using tandem::testing::error_text;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kBad = 1;      // the failing rank
constexpr int kBadStep = 3;  // the step in which it fails
constexpr BucketSizes kTiny = {64, 64, 64};
constexpr milliseconds kTimeout{1500};  // if only a timeout ends the other ranks
constexpr milliseconds kNotifiedAfterTimeout{2500};

/// Point of failure in the step: before backward, or after some gradients.
enum class Place { kBefore, kWithin };
constexpr Place kPlaces[] = {Place::kBefore, Place::kWithin};

std::ostream& operator<<(std::ostream& out, Place place) {
  return out << (place == Place::kBefore ? "before backward" : "within backward");
}

/// Error and end time of a rank's training.
struct End {
  std::string text = "nothing";
  int culprit = -1;
  Clock::time_point when;
};

/// All work on the GPU has completed or was aborted.
void synchronize_quietly(Device device) {
  try {
    cuda::synchronize(device);
  } catch (const CommError&) {
  }
}

struct Fault {
  Place place = Place::kBefore;
  std::function<void()> happen = [] {};
};

/// Trains until a CommError is thrown.
End train(const std::shared_ptr<ProcessGroup>& group, Device device, const Fault& fault) {
  End end;
  try {
    const Net net(1, device);
    const Tensor x = inputs().to(device), y = labels().to(device);
    const GradientReducer reducer(net.named(), {}, group, {.buckets = kTiny});
    int step = 0;
    const auto reach = [&](Place place) {
      if (step == kBadStep && place == fault.place) fault.happen();
    };
    const HookHandle within = net.w2.register_post_accumulate_grad_hook([&](const Tensor&) { reach(Place::kWithin); });
    for (; step < 1000000; ++step) {
      reach(Place::kBefore);
      for (Tensor p : net.parameters()) p.zero_grad();
      net.loss(x, y).backward();
    }
  } catch (const CommError& error) {
    end.text = error.what();
    end.culprit = error.peer();
  }
  end.when = Clock::now();
  synchronize_quietly(device);
  return end;
}

/// A group with open connections and short timeouts from now on.
std::shared_ptr<ProcessGroup> impatient_group(Context& context, Device device) {
  std::vector<int> all(static_cast<size_t>(context.world_size()));
  std::iota(all.begin(), all.end(), 0);
  const Net warm(1, device);
  warm.loss(inputs().to(device), labels().to(device)).backward();  // initializes libraries, which is slow
  context.group()->barrier();
  const auto group = context.new_group(all, {.timeout = kTimeout});
  const Tensor x = zeros({1}, {kFloat32, device});
  group->all_reduce(x, ReduceOp::kSum, {.timeout = kLongTimeout});
  group->broadcast(x, 0, {.timeout = kLongTimeout});
  cuda::synchronize(device);
  return group;
}

std::vector<Device> gpus(int count) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) all.push_back(Device::cuda(i));
  return all;
}

// --- threads ---

/// Errors of the ranks, and the time from the failure to the last error.
class Ends {
 public:
  explicit Ends(int world) : all_(static_cast<size_t>(world)) {}
  void fail() { failed_ = Clock::now(); }
  void add(int rank, const End& end) {
    std::lock_guard lock(mutex_);
    all_[static_cast<size_t>(rank)] = end;
    if (++count_ == all_.size() - 1) others_ended_.set_value();
  }
  void wait_for_others() { others_ended_.get_future().wait_for(kLongTimeout); }

  std::chrono::nanoseconds took() const {
    Clock::time_point last = failed_;
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (rank != kBad) last = std::max(last, all_[rank].when);
    }
    return last - failed_;
  }
  void expect_all(const ::testing::Matcher<std::string>& text) const {
    for (size_t rank = 0; rank < all_.size(); ++rank) expect(rank, text);
  }
  void expect_others(const ::testing::Matcher<std::string>& text) const {
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (rank != kBad) expect(rank, text);
    }
  }
  void expect_others_blame_it() const {
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (rank == kBad) continue;
      EXPECT_EQ(all_[rank].culprit, kBad) << all_[rank].text;
    }
  }

 private:
  void expect(size_t rank, const ::testing::Matcher<std::string>& text) const {
    EXPECT_THAT(all_[rank].text, AllOf(StartsWith(str("[rank ", rank)), text));
  }

  std::mutex mutex_;
  std::vector<End> all_;
  size_t count_ = 0;
  std::promise<void> others_ended_;
  Clock::time_point failed_;  // written by the failing rank before the others end
};

class GpuDdpFailure : public ::testing::TestWithParam<int> {
 protected:
  /// Runs f(context, ends) up to three times, because the machine may be loaded.
  std::unique_ptr<Ends> run(const std::function<void(Context&, Ends&)>& f, std::chrono::nanoseconds bound,
                            const std::string& thrown = {}) {
    std::unique_ptr<Ends> ends;
    for (int attempt = 0; attempt < 3 && (ends == nullptr || ends->took() >= bound); ++attempt) {
      ends = std::make_unique<Ends>(GetParam());
      const auto run_all = [&] { run_threads(gpus(GetParam()), [&](Context& context) { f(context, *ends); }); };
      if (thrown.empty()) {
        run_all();
      } else {
        EXPECT_EQ(error_text<ValueError>(run_all), thrown);
      }
    }
    EXPECT_LT(ends->took(), bound);
    return ends;
  }
};

// The failure of a job does not affect the next job.
TEST_P(GpuDdpFailure, GpuIsUsableByNextJobAfterException) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    const auto failing = [&](Context& context) {
      Fault fault;
      if (context.rank() == kBad) fault = {place, [] { throw ValueError("out of data"); }};
      train(context.group(), context.device(), fault);
    };
    EXPECT_EQ(error_text<ValueError>([&] { run_threads(gpus(GetParam()), failing); }), "out of data");
    EXPECT_NO_THROW(run_threads(gpus(GetParam()), [](Context& context) {
      const Tensor x = ones({2}, {kFloat32, context.device()});
      context.group()->all_reduce(x);
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(2, static_cast<float>(context.world_size())));
    }));
  }
}

TEST_P(GpuDdpFailure, ThrowingRankIsReportedOnAllOtherRanks) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    const auto ends = run(
        [&](Context& context, Ends& all) {
          Fault fault;
          if (context.rank() == kBad) {
            fault = {place, [&] {
                       all.fail();
                       throw ValueError("out of data");
                     }};
          }
          all.add(context.rank(), train(context.group(), context.device(), fault));
        },
        kNotifiedWithin, "out of data");
    ends->expect_others(HasSubstr(place == Place::kBefore ? "rank 1: out of data" : "rank 1: "));
    ends->expect_others_blame_it();
  }
}

TEST_P(GpuDdpFailure, StalledRankIsReportedAtTimeout) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    const auto ends = run(
        [&](Context& context, Ends& all) {
          Fault fault;
          if (context.rank() == kBad) {
            fault = {place, [&] {
                       all.fail();
                       all.wait_for_others();
                     }};
          }
          const auto group = impatient_group(context, context.device());
          all.add(context.rank(), train(group, context.device(), fault));
        },
        kTimeout + kNotifiedAfterTimeout);
    ends->expect_others(AnyOf(HasSubstr("missing: rank 1"), HasSubstr("no response from: rank 1 (")));
    EXPECT_GE(ends->took(), kTimeout - milliseconds(200));
  }
}

TEST_P(GpuDdpFailure, ReducerOrderMismatchReportsBothSides) {
  const auto ends = run(
      [&](Context& context, Ends& all) {
        End end;
        try {
          const Net first(1, context.device()), second(7, context.device());
          const auto named = [](const Net& net, const std::string& prefix) {
            NamedTensors tensors = net.named();
            for (auto& [name, tensor] : tensors) name = prefix + name;
            return tensors;
          };
          const GradientReducer a(named(first, "a."), {}, context.group(), {.buckets = kTiny});
          const GradientReducer b(named(second, "b."), {}, context.group(), {.buckets = kTiny});
          const Tensor x = inputs().to(context.device()), y = labels().to(context.device());
          for (int step = 0; step < 1000000; ++step) {
            const bool other = context.rank() == kBad && step == kBadStep;
            if (other) all.fail();
            for (const Net* net : {other ? &second : &first, other ? &first : &second}) net->loss(x, y).backward();
          }
        } catch (const CommError& error) {
          end.text = error.what();
        }
        end.when = Clock::now();
        all.add(context.rank(), end);
      },
      kNotifiedWithin);
  ends->expect_all(AllOf(HasSubstr("calls do not match across ranks"), HasSubstr("rank 1  all_reduce avg float64 ["),
                         HasSubstr(" on a GPU, 'bucket 0 of "), HasSubstr(": 'a."), HasSubstr(": 'b.")));
}

TEST_P(GpuDdpFailure, ExtraCollectiveOnOneRankReportsBothSides) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    const auto ends = run(
        [&](Context& context, Ends& all) {
          Fault fault;
          if (context.rank() == kBad) {
            fault = {place, [&] {
                       all.fail();
                       context.group()->all_reduce(ones({3}, {kFloat32, context.device()}), ReduceOp::kMax,
                                                   {.name = "metric"});
                     }};
          }
          all.add(context.rank(), train(context.group(), context.device(), fault));
        },
        kNotifiedWithin);
    ends->expect_all(AllOf(HasSubstr("calls do not match across ranks"),
                           HasSubstr("rank 1  all_reduce max float32 [3] on a GPU, 'metric'"),
                           HasSubstr(" on a GPU, 'bucket ")));
  }
}

TEST_P(GpuDdpFailure, ShapeMismatchFailsConstructionOnAllRanks) {
  std::mutex mutex;
  std::vector<std::string> texts;
  run_threads(gpus(GetParam()), [&](Context& context) {
    const TensorOptions options{kFloat32, context.device()};
    const Tensor w = zeros({context.rank() == kBad ? 3 : 2, 4}, options).requires_grad_();
    const std::string text = error_text<StateError>([&] {
      const GradientReducer reducer({{"fc.weight", w}}, {}, context.group());
    });
    const Tensor x = ones({2}, options);
    context.group()->all_reduce(x);  // the group is still usable
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(2, static_cast<float>(context.world_size())));
    std::lock_guard lock(mutex);
    texts.push_back(text);
  });
  EXPECT_THAT(texts, ::testing::Each("DistributedDataParallel: ranks have different models\n"
                                     "  rank 0: parameter 'fc.weight' float32 [2, 4]\n"
                                     "  rank 1: parameter 'fc.weight' float32 [3, 4]"));
}

std::string name_of(const ::testing::TestParamInfo<int>& world) { return "Of" + std::to_string(world.param); }

INSTANTIATE_TEST_SUITE_P(, GpuDdpFailure, ::testing::Values(2, 4), name_of);

// --- processes ---

int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

/// args: a folder, "killed" or "stopped", and a number of Place.
TANDEM_RANK_MAIN(train_until_one_fails) {
  Store& store = *context.store();
  const bool stops = args.at(1) == "stopped";
  const Device device = gpu_of_rank(context.rank());
  Fault fault;
  if (context.rank() == kBad) {
    fault = {static_cast<Place>(std::stoi(args.at(2))), [&] {
               if (stops) store.set("stopped", std::to_string(getpid()));
               store.set("failed", std::to_string(now_ns()));
               raise(stops ? SIGSTOP : SIGKILL);
             }};
  }
  const End end = train(stops ? impatient_group(context, device) : context.group(), device, fault);
  if (context.rank() == kBad) return;
  const int64_t took =
      std::chrono::nanoseconds(end.when.time_since_epoch()).count() - std::stoll(store.get("failed", kLongTimeout));
  std::ofstream(args.at(0) + std::to_string(context.rank())) << end.culprit << " " << took << " " << end.text;
  if (stops && store.add("heard", 1) == context.world_size() - 1) {
    tandem::testing::wake_when_stopped(std::stoi(store.get("stopped", kLongTimeout)));
  }
}

class GpuDdpProcesses : public ::testing::TestWithParam<int> {
 protected:
  /// Checks that the errors of the others name the killed or stopped rank, in time.
  std::vector<std::string> notified(const std::string& how, Place place, std::chrono::nanoseconds bound) {
    std::vector<std::string> texts;
    std::chrono::nanoseconds slowest{0};
    for (int attempt = 0; attempt < 3 && (attempt == 0 || slowest >= bound); ++attempt) {  // the machine may be loaded
      const testing::TemporaryFolder folder;
      std::string failure;
      try {
        spawn(GetParam(), "train_until_one_fails", {folder / "", how, std::to_string(static_cast<int>(place))});
      } catch (const CommError& error) {
        failure = error.what();
      }
      EXPECT_EQ(failure, how == "killed" ? str("spawn: rank 1 of ", GetParam(), " failed (killed by SIGKILL)") : "");
      texts.clear();
      slowest = {};
      for (int rank = 0; rank < GetParam(); ++rank) {
        if (rank == kBad) continue;
        std::istringstream file(testing::read_file(folder / std::to_string(rank)));
        int culprit = -2;
        int64_t took = std::numeric_limits<int64_t>::max();
        file >> culprit >> took;
        std::getline(file.ignore(), texts.emplace_back(), '\0');
        slowest = std::max(slowest, std::chrono::nanoseconds(took));
        if (how == "killed" || GetParam() == 2) {  // with more ranks a notified rank names the notifying one
          EXPECT_EQ(culprit, kBad) << texts.back();
        }
        EXPECT_THAT(texts.back(), StartsWith(str("[rank ", rank)));
      }
    }
    EXPECT_LT(slowest, bound);
    return texts;
  }
};

TEST_P(GpuDdpProcesses, KilledRankIsReportedPromptly) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    EXPECT_THAT(notified("killed", place, kNotifiedWithin), ::testing::Each(HasSubstr("rank 1: ")));
  }
}

TEST_P(GpuDdpProcesses, StoppedRankIsReportedAtTimeout) {
  for (const Place place : kPlaces) {
    SCOPED_TRACE(place);
    EXPECT_THAT(notified("stopped", place, kTimeout + kNotifiedAfterTimeout),
                ::testing::Each(AnyOf(HasSubstr("missing: rank 1"), HasSubstr("no response from: rank 1 ("))));
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuDdpProcesses, ::testing::Values(2, 4), name_of);

}}  // namespace tandem::distributed
