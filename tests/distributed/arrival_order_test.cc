// All arrival orders of the ranks at each collective.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

constexpr int kWorld = 3;
constexpr int64_t kCount = 20000;  // more than fits in a signature frame

Tensor mine(const ProcessGroup& group) { return full({kCount}, group.rank() + 1); }

void expect_all(const Tensor& x, double value) {
  const std::vector<float> values = x.to_vector<float>();
  EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(value)));
}

/// Row r is the input of rank r.
void expect_rows(const Tensor& x) {
  std::vector<float> expected;
  for (int r = 0; r < kWorld; ++r) expected.insert(expected.end(), kCount, static_cast<float>(r + 1));
  EXPECT_EQ(x.to_vector<float>(), expected);
}

/// Starts a collective; returns a function that waits for it and checks the result.
using Start = std::function<std::function<void()>(ProcessGroup&)>;

struct Operation {
  const char* name;
  Start start;
};

const Operation kOperations[] = {
    {"all_reduce",
     [](ProcessGroup& g) {
       const Tensor x = mine(g);
       return [x, work = g.all_reduce_async(x)]() mutable {
         work.wait();
         expect_all(x, 6);
       };
     }},
    {"reduce",
     [](ProcessGroup& g) {
       const Tensor x = mine(g);
       return [x, rank = g.rank(), work = g.reduce_async(x, 1)]() mutable {
         work.wait();
         expect_all(x, rank == 1 ? 6 : rank + 1);
       };
     }},
    {"broadcast",
     [](ProcessGroup& g) {
       const Tensor x = mine(g);
       return [x, work = g.broadcast_async(x, 1)]() mutable {
         work.wait();
         expect_all(x, 2);
       };
     }},
    {"all_gather",
     [](ProcessGroup& g) {
       const Tensor out = zeros({kWorld, kCount});
       return [out, work = g.all_gather_async(out, mine(g))]() mutable {
         work.wait();
         expect_rows(out);
       };
     }},
    {"gather",
     [](ProcessGroup& g) {
       const Tensor out = g.rank() == 1 ? zeros({kWorld, kCount}) : Tensor();
       return [out, work = g.gather_async(out, mine(g), 1)]() mutable {
         work.wait();
         if (out.defined()) expect_rows(out);
       };
     }},
    {"scatter",
     [](ProcessGroup& g) {
       const Tensor out = zeros({kCount});
       const Tensor in = g.rank() == 1 ? full({kWorld, kCount}, 7) : Tensor();
       return [out, work = g.scatter_async(out, in, 1)]() mutable {
         work.wait();
         expect_all(out, 7);
       };
     }},
    {"reduce_scatter",
     [](ProcessGroup& g) {
       const Tensor out = zeros({kCount});
       return [out, work = g.reduce_scatter_async(out, full({kWorld, kCount}, g.rank() + 1))]() mutable {
         work.wait();
         expect_all(out, 6);
       };
     }},
    {"all_to_all",
     [](ProcessGroup& g) {
       const Tensor out = zeros({kWorld, kCount});
       return [out, work = g.all_to_all_async(out, full({kWorld, kCount}, g.rank() + 1))]() mutable {
         work.wait();
         expect_rows(out);
       };
     }},
    {"barrier", [](ProcessGroup& g) { return [work = g.barrier_async()]() mutable { work.wait(); }; }},
    {"ring",
     [](ProcessGroup& g) {
       const int next = (g.rank() + 1) % kWorld;
       const int before = (g.rank() + kWorld - 1) % kWorld;
       const Tensor x = zeros({kCount});
       return [x, before, in = g.irecv(x, before), out = g.isend(mine(g), next)]() mutable {
         in.wait();
         out.wait();
         expect_all(x, before + 1);
       };
     }},
};

class ArrivalOrder : public ::testing::TestWithParam<Setting> {};

/// Makes threads proceed in a given order.
class Turns {
 public:
  void wait_for(int turn) {
    for (int now = turn_.load(); now < turn; now = turn_.load()) turn_.wait(now);
  }
  void go_on_with(int turn) {
    turn_.store(turn);
    turn_.notify_all();
  }

 private:
  std::atomic<int> turn_{0};
};

TEST_P(ArrivalOrder, EveryOrderOfRanksGivesCorrectResults) {
  const ThreadRanks ranks{.world_size = kWorld, .backend = GetParam().backend, .hosts = GetParam().hosts};
  Turns turns;
  ranks.run([&](ProcessGroup& group) {
    try {
      int turn = 0;
      std::vector<int> order(kWorld);
      std::iota(order.begin(), order.end(), 0);
      do {
        const auto place = std::find(order.begin(), order.end(), group.rank()) - order.begin();
        for (const Operation& operation : kOperations) {
          const ::testing::ScopedTrace trace(__FILE__, __LINE__, operation.name);
          turns.wait_for(turn + static_cast<int>(place));
          const auto finish = operation.start(group);
          turns.go_on_with(turn + static_cast<int>(place) + 1);
          finish();
          turn += kWorld;
        }
      } while (std::next_permutation(order.begin(), order.end()));
    } catch (...) {
      turns.go_on_with(std::numeric_limits<int>::max());  // no thread waits for this rank
      throw;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Each, ArrivalOrder,
                         ::testing::Values(Setting{kWorld}, Setting{kWorld, "gloo"}, Setting{kWorld, "auto", "aba"}),
                         setting_name);

}}}}  // namespace tandem::v0::distributed
