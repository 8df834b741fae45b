// One rank of two_hosts_test: trains a small net, or all-reduces until a rank is lost. In
// strangers_start_test it computes one sum.
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/small_net.h>

namespace td = tandem;

namespace {

/// A few steps on parts of a batch must equal the steps of one process on the whole batch.
void train(td::distributed::Context& context) {
  constexpr int kSteps = 5;
  const std::vector<double> together = part_of_batch(context, kSteps, {});
  const std::vector<double> alone = td::distributed::joined_batch(kSteps);
  for (size_t i = 0; i < alone.size(); ++i) {
    TANDEM_CHECK(StateError, std::abs(together[i] - alone[i]) < 1e-12, "parameter ", i, " is ", together[i],
                 ", and on one process ", alone[i]);
  }
}

/// Sums of many chunks, with all remainders of chunks and slices.
void sum(td::distributed::Context& context) {
  const int world = context.world_size();
  for (const int64_t count : {1, 63, 40000, (5 << 20) + 1}) {
    const td::Tensor x = td::arange(0, count);
    const td::Tensor sums = td::full({count}, context.rank(), {td::kInt64});
    context.group()->all_reduce(x);
    context.group()->all_reduce(sums);
    const std::vector<int64_t> values = x.to_vector<int64_t>();
    const std::vector<int64_t> ranks = sums.to_vector<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      TANDEM_CHECK(StateError, values[at] == world * i && ranks[at] == world * (world - 1) / 2, "element ", i, " of ",
                   count, " is ", values[at], " and ", ranks[at]);
    }
  }
}

void run(td::distributed::Context& context, const std::string& what) {
  if (what == "train") {
    sum(context);
    train(context);
    std::cout << "rank " << context.rank() << " agrees" << std::endl;
    return;
  }
  if (what == "join") {
    const td::Tensor ranks = td::full({3}, context.rank(), {td::kInt64});
    context.group()->all_reduce(ranks);
    const int world = context.world_size();
    TANDEM_CHECK(StateError, ranks.to_vector<int64_t>()[2] == world * (world - 1) / 2, "a wrong sum");
    return;
  }
  const td::Tensor x = td::zeros({1 << 18});
  for (int i = 0;; ++i) {
    context.group()->all_reduce(x);
    if (i == 2 && context.rank() == 0) std::cout << "running" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& context) { run(context, argv[1]); });
}
