// Primitives that involve a GPU. Private to tensor/.
#pragma once

#include <span>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace cuda {

// Like the functions of the same names in primitives.h, which have checked the arguments. Tensors are not empty.

void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes);
void fill(const Tensor& out, Scalar value);
/// out[i] = begin + i * step, int64, row-major; wraps around.
void fill_range(const Tensor& out, int64_t begin, int64_t step);
/// out[i] = base + (i + shift) * step, float64, row-major.
void fill_linear(const Tensor& out, double base, int64_t shift, double step);
/// At least one of the tensors is on a GPU.
void copy(const Tensor& src, const Tensor& out);
/// Whether kernels on `device` can access memory of GPU `memory`; the first call enables peer access.
TANDEM_API bool can_access_peer(Device device, Device memory);
/// All tensors are on GPUs.
void sum(std::span<const Tensor> inputs, const Tensor& out);
void add_into(const Tensor& src, const Tensor& out);
bool bytes_equal(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::cuda
