// Primitives on the memory of tensors of every device: copy, fill, sum, compare. They do not record for autograd and do
// not increment version counters; the operations that use them do.
#pragma once

#include <cstddef>
#include <span>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace primitives {

/// Copies bytes between ranges of one device's memory that do not overlap; on a GPU on the current stream.
TANDEM_API void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes);
/// Sets every element.
TANDEM_API void fill(const Tensor& out, Scalar value);
/// Copies between tensors of equal shape, any strides and dtypes (float to integer truncates toward zero), on any pair
/// of devices; `.to()` moves data by this function. CPU copies larger than the caches use non-temporal stores;
/// `total_bytes` is the size of the complete copy if this call copies only a part of it.
TANDEM_API void copy(const Tensor& src, const Tensor& out, int64_t total_bytes = 0);
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see stores by intrinsics
inline constexpr bool kHasNontemporalCopy = true;
#else
inline constexpr bool kHasNontemporalCopy = false;
#endif
/// memcpy with non-temporal stores followed by a store fence. Use for data that this core will not read soon, or that
/// another core reads next. Plain memcpy if kHasNontemporalCopy is false.
TANDEM_API void copy_nontemporal(void* out, const void* src, size_t num_bytes);
/// Whether kernels of `device` can read memory of `memory` directly: CPU devices read each other's memory; GPUs read
/// their own memory and the memory of peers with peer access.
TANDEM_API bool can_read(Device device, Device memory);
inline constexpr size_t kMaxGpuSumInputs = 64;
/// out = inputs[0] + inputs[1] + ..., in the order of sum_order.h. All tensors have one shape and dtype and are
/// row-major; can_read(out.device(), inputs[i].device()) holds. On a GPU at most kMaxGpuSumInputs inputs. Half types
/// are added in float32 and rounded once. Runs on the calling thread; `total_bytes` as for copy.
TANDEM_API void sum(std::span<const Tensor> inputs, const Tensor& out, int64_t total_bytes = 0);
/// out += src; both have one shape, dtype and device. Half types are added in float32.
TANDEM_API void add_into(const Tensor& src, const Tensor& out);
/// Whether two tensors of one shape, dtype and device have the same bits.
TANDEM_API bool bytes_equal(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::primitives
