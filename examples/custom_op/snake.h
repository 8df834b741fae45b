// An operation of a program that uses tandem, with kernels of its own.
#pragma once

#include <tandem/tandem.h>

namespace custom_op {

/// x + sin(alpha x)^2 / alpha, float32 or float64 on any device, with derivatives of all orders. Saves x. L. Ziyin et
/// al., "Neural networks fail to learn periodic functions and how to fix it", NeurIPS 2020.
tandem::Tensor snake(const tandem::Tensor& x, double alpha = 1);

/// The kernels; x and y are contiguous. snake_gpu is defined in snake_cuda.cu.
template <class T>
void snake_cpu(int64_t n, const T* x, T alpha, T* y);
template <class T>
void snake_gpu(const tandem::KernelContext& context, int64_t n, const T* x, T alpha, T* y);

}  // namespace custom_op
