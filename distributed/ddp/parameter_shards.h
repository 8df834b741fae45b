// Parameters whose updates are divided among the ranks of a group (ZeRO). Private to distributed/.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/distributed/ddp/bucket_plan.h>
#include <tandem/distributed/ddp/gradient_reducer.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Memory of parameters and gradients, bucket by bucket. A bucket consists of group.size() pieces of equal size; rank r
/// updates piece r of every bucket. The parameters are views of their buckets, so that an all_gather in place completes
/// them. With kParameters, a rank has only its pieces, and buckets get memory when they are gathered. S. Rajbhandari et
/// al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
class ParameterShards : public autograd::ShardGroup {
 public:
  /// Moves the parameters to buckets. `plan` is made with group->size() pieces. Throws StateError if a parameter shares
  /// its memory with another tensor. With kParameters, collective: takes the values of rank 0; `owners` become those
  /// of the parameters' memory. If it throws OutOfMemory or CommError, some parameters have no elements.
  ParameterShards(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan, const NamedTensors& parameters,
                  const ReducerOptions& options, const std::vector<RefPtr<StorageOwner>>& owners = {});
  /// Gives the parameters their shards.
  void attach();
  /// Takes the shards and gradients from the parameters.
  virtual void remove();

  Tensor slot(const autograd::Leaf& leaf) override;
  void exchange(const std::vector<const autograd::Leaf*>& leaves) override;
  void all_reduce(const Tensor& values, bool maximum) override;

  /// The gradients of this rank in a bucket, [ranks, n].
  const Tensor& gradients(size_t bucket);
  /// The parameters of a bucket, in the order of its memory.
  const std::vector<size_t>& contents(size_t bucket) const { return buckets_[bucket].contents; }
  /// Averages the gradients of a bucket into this rank's piece. With kGradients, first waits for earlier buckets if
  /// many are in flight.
  Work average_async(size_t bucket, const std::string& name);
  /// Waits for the average of a bucket, adds it to the gradients of earlier backward passes, and drops the parameters'
  /// slots. If average_async was not called, the bucket's gradients are the mean.
  void end_average(size_t bucket);

 protected:
  struct Bucket {
    Tensor own;                           ///< [n]: this rank's piece of the parameters
    Tensor parameters;                    ///< [ranks, n]; with kParameters undefined unless gathered
    std::vector<RefPtr<Storage>> memory;  ///< with kParameters: of the parameters, in the order of `contents`
    uint32_t version = 0;                 ///< sum of their versions when they were gathered
    uint64_t changes = 0;                 ///< hash of the values that were written to them while they were whole
    Tensor gradients;                     ///< [ranks, n]; with kGradients undefined unless backward runs
    Tensor piece;                         ///< [n]: the mean; with kOptimizer a part of `gradients`
    Tensor earlier;                       ///< [n]: copy of `piece` during a backward that adds to it
    Work average;                         ///< in flight
    std::vector<size_t> contents;         ///< parameters, in the order of the memory
  };

  /// With kParameters: allocates the memory for the gather of a bucket, if it has none.
  void reserve(size_t bucket);
  /// Starts the gather of a bucket with memory.
  Work gather_async(size_t bucket, const std::string& name);
  /// When the gather has ended: the parameters are whole.
  void provide(size_t bucket);
  /// Drops the gathered parameters. Changes of this rank's piece are kept if `keep_changes`.
  void withdraw(size_t bucket, bool keep_changes);
  ProcessGroup& group() const { return *group_; }
  int num_ranks() const { return group_->size(); }
  size_t num_buckets() const { return buckets_.size(); }
  const Bucket& bucket(size_t index) const { return buckets_[index]; }
  autograd::Leaf& leaf(size_t parameter) const { return *leaves_[parameter]; }

  int64_t max_free_ = 0;  ///< bytes that are kept for later gradients and gathers, at least: what a step needs

 private:
  /// A new tensor [ranks, n] like the parameters of `bucket`, in the memory of an earlier one if possible.
  Tensor make_whole(const Bucket& bucket);
  /// Keeps the memory of `whole` for the next make_whole(), or frees it.
  void recycle(Tensor& whole);
  /// This rank's piece of the parameters or gradients of a bucket.
  Tensor own_piece(const Tensor& values) const;
  /// A parameter's part of `values`, which are the parameters or gradients of its bucket.
  Tensor slice(const Tensor& values, size_t parameter) const;

  const std::shared_ptr<ProcessGroup> group_;
  const Shard level_;
  /// Not with kOptimizer, nor if a rank may wait here for a rank that waits for it elsewhere, because it uses other
  /// parameters.
  const bool limits_memory_;
  std::vector<RefPtr<autograd::Leaf>> leaves_;  ///< by parameter
  std::vector<size_t> bucket_of_;               ///< by parameter
  std::vector<int64_t> offsets_;                ///< in the bucket, by parameter
  std::vector<Bucket> buckets_;
  std::deque<size_t> in_flight_;       ///< buckets whose average has not ended
  std::vector<RefPtr<Storage>> free_;  ///< memory of earlier gradients and gathered parameters
};

}}}  // namespace tandem::v0::distributed
