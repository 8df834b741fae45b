// Kernels of the primitives. Private to tensor/cuda.
#pragma once

#include <cstdint>

#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace cuda {

// All tensors and pointers are on the context's device.

void fill_elements(const KernelContext& context, const Tensor& out, Scalar value);
/// out[i] = begin + i * step for i < n.
void range_elements(const KernelContext& context, int64_t begin, int64_t step, int64_t n, int64_t* out);
/// out[i] = base + (i + shift) * step for i < n.
void linear_elements(const KernelContext& context, double base, int64_t shift, double step, int64_t n, double* out);
/// Any strides and dtypes.
void copy_elements(const KernelContext& context, const Tensor& src, const Tensor& out);
void add_elements(const KernelContext& context, const Tensor& src, const Tensor& out);
/// primitives::sum() of buffers of n elements each, at most primitives::kMaxGpuSumInputs of them.
void sum_elements(const KernelContext& context, DType dtype, std::span<const std::byte* const> inputs, int64_t n,
                  std::byte* out);
/// Copies the numbers to `out` in GPU memory, as kernel arguments; they are read before the call returns.
void write_numbers(const KernelContext& context, std::span<const double> numbers, double* out);
/// Sets *differ to 1 if any element differs.
void compare_elements(const KernelContext& context, const Tensor& a, const Tensor& b, int32_t* differ);

}}}  // namespace tandem::v0::cuda
