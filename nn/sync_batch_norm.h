// Batch normalisation over the batches of all ranks.
#pragma once

#include <memory>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/norm.h>

namespace tandem { inline namespace v0 { namespace nn {

/// BatchNorm2d whose statistics, in training, are those of the batches of all ranks of a group together: for batches too small
/// to have good ones of their own.
///
/// Ranks may have different numbers of images, or none.  In training forward exchanges 3 C numbers of each rank (on GPUs one
/// more, between the hosts) and backward 2 C, all float64 and blocking, so all ranks must run the same layers in the same order;
/// a GPU is not waited for.  The gradients of weight and bias are those of the rank's own images: DistributedDataParallel averages
/// them as all others.  Its backward cannot be recorded (create_graph).  The result, the gradients and the running statistics equal
/// those of BatchNorm2d on the joined batch.
class TANDEM_API SyncBatchNorm : public BatchNorm2d {
 public:
  /// Throws ValueError for a group that is null, and as BatchNorm2d.
  SyncBatchNorm(int64_t num_features, std::shared_ptr<distributed::ProcessGroup> group,
                BatchNorm2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  Tensor add_relu(const Tensor& input, const Tensor& residual) override;

 private:
  Tensor normalise(const Tensor& input) const;

  std::shared_ptr<distributed::ProcessGroup> group_;
};

/// What sync_batch_norm exchanges, through a group; `name` is shown where that fails.
TANDEM_API std::shared_ptr<BatchNormExchange> exchange_over(std::shared_ptr<distributed::ProcessGroup> group,
                                                            std::string name);

}}}  // namespace tandem::v0::nn
