#include <tandem/train/over_ranks.h>

#include <algorithm>

#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace train {

void sum_over_ranks(std::span<int64_t> counts, const std::shared_ptr<distributed::ProcessGroup>& group,
                    const char* metric) {
  if (group == nullptr) return;
  const Tensor tensor = empty({static_cast<int64_t>(counts.size())}, {kInt64});
  std::copy(counts.begin(), counts.end(), tensor.data<int64_t>());
  group->all_reduce(tensor, distributed::ReduceOp::kSum, {.name = metric});
  std::copy_n(tensor.data<int64_t>(), counts.size(), counts.begin());
}

}}}  // namespace tandem::v0::train
