// Parameters whose updates are divided among ranks (ZeRO).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/ref_counted.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

class Leaf;

/// The ranks that divide the update of parameters: each rank updates its piece of every parameter. All functions except
/// slot() are collective, and called with the same parameters on all ranks. Implemented by distributed/.
class ShardGroup : public RefCounted {
 public:
  /// Memory of the leaf's shape for the gradient of this rank, before it is averaged.
  virtual Tensor slot(const Leaf& leaf) = 0;
  /// After this rank has changed its pieces of the parameters: sends them, and receives the pieces of the other ranks,
  /// unless parameters are whole only at times.
  virtual void exchange(const std::vector<const Leaf*>& leaves) = 0;
  /// values = the sum of the ranks' `values`, or their maximum.
  virtual void all_reduce(const Tensor& values, bool maximum) = 0;
};

/// The piece of a parameter that this rank updates.
struct LeafShard : public RefCounted {
  LeafShard(RefPtr<ShardGroup> ranks, size_t position, int64_t from, int64_t to, Tensor elements)
      : group(std::move(ranks)), index(position), begin(from), end(to), values(std::move(elements)) {}

  const RefPtr<ShardGroup> group;
  const size_t index;         ///< of the parameter in `group`
  const int64_t begin, end;   ///< elements of the parameter, in row-major order; may be equal
  const Tensor values;        ///< [end - begin]: these elements of the parameter
  Tensor gradient;            ///< [end - begin]: the mean over the ranks
  bool is_in_pieces = false;  ///< whether states have `values` instead of the whole parameter
  bool is_filled = false;     ///< whether `gradient` has been computed since the last zero_grad()

  int64_t size() const { return end - begin; }
};

}}}  // namespace tandem::v0::autograd
