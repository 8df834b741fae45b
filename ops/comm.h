// Sums, copies and parts of tensors on several devices of one process. For several processes or ranks use ProcessGroup.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

/// Data is copied only to the devices that the call names or that its tensors are on. All functions
///
/// - block; they work in chunks, a limited number at a time (TransferOptions), which overlap between all pairs of
///   devices. The only extra memory is the chunks in flight, so operands need not fit on the device of the sum;
/// - check memory first: OutOfMemory, with the bytes of the plan, is thrown before anything is copied. After a later
///   failure the results are dropped;
/// - sum in the order of sums over ranks (docs/determinism.md), by position in the list; half types in float32, rounded
///   once; integers wrap around; bool is "or". The bits depend on neither chunks nor threads. Dtypes must be equal: use
///   `to(dtype)` first;
/// - are recorded; their gradients are copied back;
/// - throw ValueError (no tensors, bad options), StateError (undefined), ShapeError, DTypeError, DeviceError,
///   OutOfMemory.
namespace tandem { inline namespace v0 { namespace comm {

/// tensors[0] + tensors[1] + ... on `device`, of equal shape and dtype. Gradient of tensors[i]: the gradient of the
/// result, copied to the device of tensors[i].
TANDEM_OP Tensor sum_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options = {});

/// New tensors: a copy of the sum on the device of each input. Throws DeviceError if two inputs are on one device.
/// Gradient of tensors[i]: the sum of the gradients of all outputs, copied to the device of tensors[i].
TANDEM_OP std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, const TransferOptions& options = {});

/// `tensor` on each device, in the order of `devices`; `tensor` itself on its own device. Gradient: the sum of
/// the gradients of all outputs.
TANDEM_OP std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices,
                                        const TransferOptions& options = {});

/// Parts of `tensor` along `dim`, one per device. Sizes differ by at most 1, larger parts first; with more devices than
/// indices the last parts have size 0. The part on the tensor's own device is a view. Throws IndexError.
TANDEM_OP std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices, int64_t dim = 0,
                                      const TransferOptions& options = {});

/// The tensors concatenated along `dim`, on `device`; the other sizes and the dtypes must be equal. Each tensor is
/// copied directly into the result. (`gather_to` does not concatenate; tandem::gather picks elements by index.)
/// Gradient of tensors[i]: its part of the result's gradient, copied to its device. Throws IndexError.
TANDEM_OP Tensor gather(const std::vector<Tensor>& tensors, int64_t dim, Device device,
                        const TransferOptions& options = {});

/// The result of gather on the device of each tensor; one tensor per device, else DeviceError.
TANDEM_OP std::vector<Tensor> all_gather(const std::vector<Tensor>& tensors, int64_t dim = 0,
                                         const TransferOptions& options = {});

}}}  // namespace tandem::v0::comm
