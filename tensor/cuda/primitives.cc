#include <vector>

#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/pinned.h>
#include <tandem/tensor/cuda/primitives_kernels.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_primitives.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Makes work queued on the stream of `later` from now on wait for the work queued so far on the stream of `earlier`.
void order(Device earlier, Device later) {
  const Event event(earlier);
  event.record(current_stream(earlier));
  event.make_wait(current_stream(later));
}

/// Copies a contiguous tensor between CPU and GPU, or between GPUs. Copies from or to the CPU have finished on return.
void copy_whole(const Tensor& src, const Tensor& out) {
  const Device from = src.device(), to = out.device();
  const Device gpu = to.is_cpu() ? from : to;
  if (from.is_cpu() || to.is_cpu()) {
    copy_pageable(gpu, out.data_ptr(), src.data_ptr(), out.num_bytes(), from.is_cpu());
    if (to.is_cpu()) throw_device_error(gpu);  // of kernels that computed the values
  } else if (from == to) {
    copy_bytes(gpu, out.data_ptr(), src.data_ptr(), out.num_bytes());
  } else {
    const DeviceGuard guard(gpu);
    order(from, to);
    TANDEM_CUDA_CHECK(cudaMemcpyPeerAsync(out.data_ptr(), to.index, src.data_ptr(), from.index,
                                          static_cast<size_t>(out.num_bytes()), stream_of(to)));
    order(to, from);  // later work may overwrite the source or reuse its memory
  }
}

}  // namespace

void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes) {
  const DeviceGuard guard(device);
  TANDEM_CUDA_CHECK(
      cudaMemcpyAsync(out, src, static_cast<size_t>(num_bytes), cudaMemcpyDeviceToDevice, stream_of(device)));
}

void fill(const Tensor& out, Scalar value) { fill_elements(kernel_context(out.device()), out, value); }

void fill_range(const Tensor& out, int64_t begin, int64_t step) {
  range_elements(kernel_context(out.device()), begin, step, out.numel(), out.data<int64_t>());
}

void fill_linear(const Tensor& out, double base, int64_t shift, double step) {
  linear_elements(kernel_context(out.device()), base, shift, step, out.numel(), out.data<double>());
}

void copy(const Tensor& src, const Tensor& out) {
  const Device from = src.device(), to = out.device();
  const bool plain = src.dtype() == out.dtype() && src.is_contiguous() && out.is_contiguous();
  if (plain) return copy_whole(src, out);
  if (from == to) return copy_elements(kernel_context(from), src, out);
  if (!from.is_cpu() && !to.is_cpu() && can_access_peer(to, from)) {
    order(from, to);
    copy_elements(kernel_context(to), src, out);
    return order(to, from);
  }
  // Only row-major data of the narrower dtype is transferred between devices.
  const DType dtype = size_of(out.dtype()) < size_of(src.dtype()) ? out.dtype() : src.dtype();
  Tensor packed = src, staged = out;
  if (!src.is_contiguous() || src.dtype() != dtype) {
    packed = empty(src.shape(), {dtype, from});
    primitives::copy(src, packed);
  }
  if (!out.is_contiguous() || out.dtype() != dtype) staged = empty(out.shape(), {dtype, to});
  copy_whole(packed, staged);
  if (!staged.is_same(out)) primitives::copy(staged, out);
}

void sum(std::span<const Tensor> inputs, const Tensor& out) {
  TANDEM_CHECK(ValueError, inputs.size() <= primitives::kMaxGpuSumInputs, "sum: a GPU supports at most ",
               primitives::kMaxGpuSumInputs, " inputs, got ", inputs.size());
  const Device here = out.device();
  const KernelContext context = kernel_context(here);
  std::vector<const std::byte*> data;
  for (const Tensor& input : inputs) {
    if (input.device() != here) order(input.device(), here);
    data.push_back(input.data_ptr());
  }
  sum_elements(context, out.dtype(), data, out.numel(), out.data_ptr());
  for (const Tensor& input : inputs) {
    // Later work may overwrite the input or reuse its memory.
    if (input.device() != here) order(here, input.device());
  }
}

void add_into(const Tensor& src, const Tensor& out) { add_elements(kernel_context(out.device()), src, out); }

bool bytes_equal(const Tensor& a, const Tensor& b) {
  const Tensor differ = zeros({1}, {kInt32, a.device()});
  compare_elements(kernel_context(a.device()), a, b, reinterpret_cast<int32_t*>(differ.data_ptr()));
  return differ.item<int32_t>() == 0;
}

}}}  // namespace tandem::v0::cuda
