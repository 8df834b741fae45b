// Sums, copies and parts of tensors on several devices of one process.  (Those of several processes or ranks are a
// ProcessGroup's.)
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

/// Data goes to the devices that the call names, or the tensors stand for, and nowhere else.  All functions
///
/// - block; work in chunks, some at a time (TransferOptions), that overlap whatever devices they are between, and need no
///   memory beside their results but the chunks in flight: operands need not fit where they are summed;
/// - check memory first: OutOfMemory gives the plan's numbers before anything is moved; a failure midway drops the results;
/// - sum in the order of the list, half types in float32, rounded once; integers wrap around, for bool "or".  Bits depend on
///   neither chunks nor threads.  Dtypes must be equal: what is to be converted is converted by `to(dtype)`, on the device where
///   that is cheap;
/// - record themselves; the gradient goes the way back;
/// - throw ValueError (no tensors, bad options), StateError (undefined), ShapeError, DTypeError, DeviceError, OutOfMemory.
namespace tandem { inline namespace v0 { namespace comm {

/// tensors[0] + tensors[1] + ... on `device`, of equal shape and dtype.  d tensors[i] = d out, moved to its device.
TANDEM_OP Tensor sum_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options = {});

/// That sum on each tensor's device, new tensors; one tensor per device, else DeviceError.  d tensors[i] = the sum of d out[j],
/// moved to its device.
TANDEM_OP std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, const TransferOptions& options = {});

/// `tensor` on each device, in their order; where it is there itself.  d tensor = the sum of the gradients.
TANDEM_OP std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices,
                                        const TransferOptions& options = {});

/// Parts of `tensor` along `dim`, one per device, that differ in size by one at most, the larger first; a part of size 0 where
/// there are more devices than indices.  A part whose device is the tensor's is a view.  Throws IndexError.
TANDEM_OP std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices, int64_t dim = 0,
                                      const TransferOptions& options = {});

/// The tensors, one behind the other along `dim`, on `device`; sizes along other dimensions and dtypes are equal.  Assembled in
/// place.  (`gather_to` keeps them apart; tandem::gather picks elements by index.)  d tensors[i] = its part of d out, moved to its
/// device.  Throws IndexError.
TANDEM_OP Tensor gather(const std::vector<Tensor>& tensors, int64_t dim, Device device,
                        const TransferOptions& options = {});

/// What gather gives, on each tensor's device; one tensor per device, else DeviceError.
TANDEM_OP std::vector<Tensor> all_gather(const std::vector<Tensor>& tensors, int64_t dim = 0,
                                         const TransferOptions& options = {});

}}}  // namespace tandem::v0::comm
