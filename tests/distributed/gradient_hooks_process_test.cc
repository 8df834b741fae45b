// Communication hooks give bit-identical results on process ranks and thread ranks.
#include <tandem/distributed/comm_hooks.h>

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <tandem/distributed/launch.h>
#include <tandem/tests/distributed/hooked_parameters.h>

namespace tandem::distributed { namespace {

constexpr int kSteps = 5;

/// The gradients of a few steps.
std::vector<float> exchange(Context& context) {
  const HookedParameters p({{33, 31}, {7}, {12, 12}});
  GradientReducer reducer(p.named(), {}, context.group(),
                          {.buckets = {64, 64, 64},
                           .hooks = {power_sgd({.rank = 2, .start_step = 1}), bf16_compress()},
                           .hook_report_every = 2});
  std::vector<float> all;
  for (int step = 0; step < kSteps; ++step) {
    p.backward(context.rank(), step);
    for (size_t i = 0; i < 3; ++i) {
      for (const float v : p[i].grad().to_vector<float>()) all.push_back(v);
    }
  }
  all.push_back(static_cast<float>(reducer.hook_report().relative_error));
  return all;
}

TANDEM_RANK_MAIN(exchange_through_hooks) {
  const std::vector<float> got = exchange(context);
  std::ofstream file(args.at(0) + std::to_string(context.rank()), std::ios::binary);
  file.write(reinterpret_cast<const char*>(got.data()), static_cast<std::streamsize>(got.size() * sizeof(float)));
}

TEST(CommHooks, ProcessAndThreadRanksAreBitwiseEqual) {
  const std::string path = testing::TempDir() + "/hooks-";
  spawn(2, "exchange_through_hooks", {path});
  std::vector<float> of_threads;
  run_threads(2, [&](Context& context) {
    std::vector<float> got = exchange(context);
    if (context.rank() == 0) of_threads = std::move(got);
  });
  for (const char* rank : {"0", "1"}) {
    std::vector<float> got(of_threads.size() + 1);
    std::ifstream file(path + rank, std::ios::binary);
    file.read(reinterpret_cast<char*>(got.data()), static_cast<std::streamsize>(got.size() * sizeof(float)));
    ASSERT_EQ(file.gcount(), static_cast<std::streamsize>(of_threads.size() * sizeof(float)));
    got.pop_back();
    EXPECT_EQ(got, of_threads);
  }
}

}}  // namespace tandem::distributed
