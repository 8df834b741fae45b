// Collectives with gradients, as torch.distributed.nn.functional.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace functional {

// The loss is the sum over the ranks of the losses that they call backward on: L = L_0 + ... + L_(n-1), n = size(). The
// gradient that a rank gets for its input x is dL/dx, so it has the contributions of all ranks. If every rank computes
// the same loss, divide it by n.
//
// Results are new tensors. Any dtype and device of the group; floating inputs have gradients. `group` null: the default
// group (see init.h); it stays alive until backward has released the graph. `options` also apply to the collective of
// backward, which has the name "gradient of NAME". backward with create_graph is supported. No tensor is saved.
//
// Order. Forward and backward block as the collectives of ProcessGroup. backward runs its collectives on the calling
// thread in the reverse order of the forward calls, whatever the graph between them. So ranks that call the same
// functions in the same order, and whose losses depend on the same results, need no other synchronization. Use a group
// of its own if other collectives of backward (DistributedDataParallel, SyncBatchNorm) run between them.
//
// Errors: those of the collectives, for example ShapeError before anything is sent. ValueError for an operator other
// than kSum and kAvg. CommError on all ranks in forward if the input requires grad on some ranks only, because their
// backward would wait for the others.

/// y = sum of x over all ranks, or their mean (kAvg), with the shape of x, equal on all ranks.
/// Gradient: dx = all_reduce(dy, op).
TANDEM_API Tensor all_reduce(const Tensor& input, ReduceOp op = ReduceOp::kSum,
                             const std::shared_ptr<ProcessGroup>& group = nullptr, CollectiveOptions options = {});

/// y[r] = x of rank r: [...] -> [n, ...]. Equal shapes on all ranks.
/// Gradient: dx = sum over the ranks of their dy[rank()], reduce_scatter(dy).
TANDEM_API Tensor all_gather(const Tensor& input, const std::shared_ptr<ProcessGroup>& group = nullptr,
                             CollectiveOptions options = {});

/// y = sum, or mean, of x[rank()] over all ranks: [n, ...] -> [...]. Equal shapes on all ranks.
/// Gradient: dx = all_gather(dy), divided by n for kAvg.
TANDEM_API Tensor reduce_scatter(const Tensor& input, ReduceOp op = ReduceOp::kSum,
                                 const std::shared_ptr<ProcessGroup>& group = nullptr, CollectiveOptions options = {});

/// y = x of root. Equal shapes on all ranks; the values of other ranks are not used.
/// Gradient: on root, dx = sum of dy over all ranks; on other ranks 0.
TANDEM_API Tensor broadcast(const Tensor& input, int root, const std::shared_ptr<ProcessGroup>& group = nullptr,
                            CollectiveOptions options = {});

/// Splits dimension 0: sends input_splits[r] rows to rank r and receives output_splits[r] rows from it, in rank order,
/// as torch.distributed.all_to_all_single. Without splits, dimension 0 is divided equally; ShapeError if it cannot be.
/// Gradient: the same exchange in the other direction: dx = all_to_all(dy, input_splits, output_splits).
TANDEM_API Tensor all_to_all(const Tensor& input, std::vector<int64_t> output_splits = {},
                             std::vector<int64_t> input_splits = {},
                             const std::shared_ptr<ProcessGroup>& group = nullptr, CollectiveOptions options = {});

}}}}  // namespace tandem::v0::distributed::functional
