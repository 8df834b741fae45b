// The chores where a GPU takes part.  Private to tensor/.
#pragma once

#include <span>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace cuda {

// As in chores.h, where the arguments were checked; there are elements.

void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes);
void fill(const Tensor& out, Scalar value);
/// out[i] = begin + i * step, int64, row-major; wraps as unsigned numbers do.
void fill_range(const Tensor& out, int64_t begin, int64_t step);
/// At least one of the two is on a GPU.
void copy(const Tensor& src, const Tensor& out);
/// Whether kernels of one GPU read and write the other's memory; what allows it is done in the first call.
TANDEM_API bool reaches(Device device, Device memory);
/// All are on GPUs.
void sum(std::span<const Tensor> inputs, const Tensor& out);
void add_into(const Tensor& src, const Tensor& out);
bool bytes_equal(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::cuda
