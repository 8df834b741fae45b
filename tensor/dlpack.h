// DLPack: exchange of tensors with other libraries of the process (PyTorch, NumPy, CuPy, JAX) without a copy.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

// The structures of DLPack's C header dlpack.h, which programs include to access the fields.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tandem { inline namespace v0 {

/// The tensor for a consumer of DLPack 1.x. Shares the memory, with all strides, and keeps it alive until the consumer
/// calls the result's `deleter`, once, on any thread. Changes by the consumer are not counted in version(), so it must
/// not change a tensor that backward needs. Every CPU device is exported as DLPack's device (kDLCPU, 0).
///
/// On a GPU the values are ready in the order of cuda::current_stream: a consumer on another stream must wait for it
/// (an event, or cuda::synchronize before this call). The memory is reused in the order of the stream of its
/// allocation, so the consumer's work must have finished before it calls `deleter`.
///
/// Throws StateError for a tensor that requires grad (export x.detach()) or is undefined.
TANDEM_API DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
/// to_dlpack for consumers of the structure that DLPack 1.0 replaced.
TANDEM_API DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

/// A tensor on the memory of another library, with its strides. Calls `deleter`, if there is one, when the tensor and
/// all its views have been destroyed, on the thread that destroys the last. After an error the caller still owns
/// `managed`, and must call its deleter. Memory of kDLCPU and kDLCUDAHost becomes a tensor on cpu:0.
///
/// On a GPU the producer's work must be ordered before cuda::current_stream: Python's `__dlpack__(stream=..)` does it
/// for the stream's handle(). The deleter is called without a synchronization: if the producer reuses memory on another
/// stream, synchronize before the last view is destroyed.
///
/// Throws ValueError for null, a major version other than 1, read-only memory (all tensors of tandem are writable), a
/// negative stride, or data that is null or not aligned to its dtype; ShapeError for a negative or overflowing size;
/// DTypeError and DeviceError for those that tandem does not support.
TANDEM_API Tensor from_dlpack(DLManagedTensorVersioned* managed);
/// from_dlpack for the structure that DLPack 1.0 replaced, which does not say whether the memory is read-only.
TANDEM_API Tensor from_dlpack(DLManagedTensor* managed);

}}  // namespace tandem::v0
