// The chores that tensor/ does for every device.  Nothing above rewrites them.  They know no autograd and bump no
// version; the operations above them do.
#pragma once

#include <cstddef>
#include <span>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace chores {

/// Bytes between two places of one device's memory that do not overlap; on a GPU in the order of the current stream.
TANDEM_API void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes);
/// Sets every element.
TANDEM_API void fill(const Tensor& out, Scalar value);
/// Copies between tensors of equal shape, any strides and dtypes (float to integer truncates toward zero), on any pair of
/// devices: this is where `.to()` moves data.  What the caches would not hold goes past them; `whole_bytes`: size of the copy
/// that this is a part of.
TANDEM_API void copy(const Tensor& src, const Tensor& out, int64_t whole_bytes = 0);
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // which does not see what intrinsics store
inline constexpr bool kCanStream = true;
#else
inline constexpr bool kCanStream = false;
#endif
/// Copies bytes with stores that go past the caches and are ordered before later ones: for what this core does not read soon, or
/// another reads next.  memcpy unless kCanStream.
TANDEM_API void copy_past_caches(void* out, const void* src, size_t num_bytes);
/// Whether sums on `device` take what lies on `memory` as it is: CPU devices read each other's memory, GPUs their own and that
/// of their peers.
TANDEM_API bool can_read(Device device, Device memory);
inline constexpr size_t kMostSummedOnGpu = 64;
/// out = inputs[0] + inputs[1] + ... in this order, of equal shape and dtype, all row-major, on devices that out's can read, on a
/// GPU at most kMostSummedOnGpu; half types are added in float32 and rounded once.  On the calling thread; `whole_bytes` as for copy.
TANDEM_API void sum(std::span<const Tensor> inputs, const Tensor& out, int64_t whole_bytes = 0);
/// out += src for equal shape, dtype and device; half types are added in float32.
TANDEM_API void add_into(const Tensor& src, const Tensor& out);
/// Whether two tensors of equal shape, dtype and device hold the same bits.
TANDEM_API bool bytes_equal(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::chores
