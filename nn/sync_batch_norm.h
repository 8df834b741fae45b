// Batch normalization over the batches of all ranks.
#pragma once

#include <memory>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/norm.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Batch normalization of x [N, C, ...] that in training mode uses the statistics of the combined batches of all ranks
/// of a group, for batches that are too small per rank. A batch norm of the combined batch gives equal results,
/// gradients and running statistics.
///
/// Ranks may have different numbers of samples, also zero. In training mode, forward calls an all_gather of 3 C float64
/// values per rank (on GPUs one more between the hosts), and backward an all_reduce of 2 C. They block the host until
/// all ranks have called them, but do not synchronize with a GPU, so all ranks must run the same layers in the same
/// order. The gradients of weight and bias are computed from the rank's own samples; DistributedDataParallel averages
/// them. backward with create_graph is not supported.
class TANDEM_API SyncBatchNorm : public BatchNormBase {
 public:
  /// Throws ValueError if `group` is null, and for arguments that BatchNorm2d rejects.
  SyncBatchNorm(int64_t num_features, std::shared_ptr<distributed::ProcessGroup> group,
                const BatchNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  Tensor add_relu(const Tensor& input, const Tensor& residual) override;

 private:
  Tensor normalize(const Tensor& input) const;

  std::shared_ptr<distributed::ProcessGroup> group_;
};

/// The collectives of sync_batch_norm over a group; error texts contain `name`.
TANDEM_API std::shared_ptr<BatchNormExchange> exchange_over(std::shared_ptr<distributed::ProcessGroup> group,
                                                            std::string name);

}}}  // namespace tandem::v0::nn
