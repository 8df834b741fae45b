#include <tandem/base/parallel_for.h>

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/rank_context.h>

namespace tandem {
namespace {

TEST(ParallelFor, VisitsEachItemOnce) {
  RankContext context;
  RankContext::Use use(context);
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int64_t n : {0, 1, 3, 7, 31, 32, 33, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
      parallel_for(n, 7, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

}  // namespace
}  // namespace tandem
