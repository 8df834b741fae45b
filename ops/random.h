// Random tensors.
//
// Every value is a pure function of the generator's position (seed, rank, device number, offset) and of the element's
// number i in row-major order, so the bits are the same for any number of threads and for thread and process ranks. w_i
// is the i-th 32-bit word of the stream from the position on (tensor/generator.h). `generator` null:
// default_generator(device). Only dropout has a gradient.
//
// GPUs draw the same bits as CPUs, except in randn and in multinomial without replacement: the GPU's logarithms,
// cosines and sines in float64 may differ in the last bits, which changes float64 results and, very rarely, others. An
// invalid value in GPU memory (bernoulli, multinomial) makes the next synchronization throw (tensor/cuda.h), with an
// arbitrary one of the invalid values.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Uniform in [0, 1). float32: (w_i >> 8) / 2^24. float64: ((w_2i >> 5) * 2^26 + (w_2i+1 >> 6)) / 2^53. float16: the
/// upper 11 bits of w_i, divided by 2^11; bfloat16: the upper 8 bits, divided by 2^8. Throws DTypeError for other
/// dtypes.
TANDEM_OP Tensor rand(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr);

/// Normal with mean 0 and variance 1, in pairs: values 2j and 2j + 1 are r cos(t) and r sin(t) with r = sqrt(-2 ln(1 -
/// u)), t = 2 pi v, where u and v are rand's values 2j and 2j + 1 (in float64 for float64, else in float32). Computed
/// in float64; half types are rounded from float32. Throws DTypeError for a dtype that is not floating.
/// G. E. P. Box, M. E. Muller, "A note on the generation of random normal deviates", 1958.
TANDEM_OP Tensor randn(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr);

/// A dtype or a device in place of TensorOptions, as for factories.
Tensor rand(const Shape& shape, TensorOption auto option) { return rand(shape, detail::with(option)); }
/// The same for randn.
Tensor randn(const Shape& shape, TensorOption auto option) { return randn(shape, detail::with(option)); }
/// rand and randn with sizes as several numbers.
Tensor rand(IntegerType auto n, IntegerType auto m, IntegerType auto... l) { return rand(Shape::list(n, m, l...)); }
Tensor randn(IntegerType auto n, IntegerType auto m, IntegerType auto... l) { return randn(Shape::list(n, m, l...)); }

/// rand and randn with the shape, dtype and device of `input`.
TANDEM_OP Tensor rand_like(const Tensor& input, Generator* generator = nullptr);
TANDEM_OP Tensor randn_like(const Tensor& input, Generator* generator = nullptr);  ///< normally distributed
/// mean + std * randn, as Tensor::normal_.
TANDEM_OP Tensor normal(double mean, double std, const Shape& shape, TensorOptions options = {},
                        Generator* generator = nullptr);
/// mean + std * randn of the shape to which mean and std broadcast, in their common dtype, which is floating
/// (DTypeError). No gradient. Negative deviations are not an error.
TANDEM_OP Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator = nullptr);
TANDEM_OP Tensor normal(const Tensor& mean, double std = 1, Generator* generator = nullptr);
TANDEM_OP Tensor normal(double mean, const Tensor& std, Generator* generator = nullptr);

/// Uniform integers in [low, high): low + floor((w_2i + 2^32 w_2i+1) * (high - low) / 2^64). The error of each
/// probability is below 2^-64. Throws ValueError unless low < high and the dtype represents all integers of the range;
/// DTypeError for bool.
TANDEM_OP Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {kInt64},
                         Generator* generator = nullptr);

/// randint(0, high, ...).
TANDEM_OP Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {kInt64},
                         Generator* generator = nullptr);

/// A dtype or a device in place of TensorOptions.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOption auto option) {
  return randint(low, high, shape, detail::with(option, {kInt64}));
}
/// randint(0, high, shape, option).
Tensor randint(int64_t high, const Shape& shape, TensorOption auto option) { return randint(0, high, shape, option); }

/// A random permutation of 0 .. n - 1, int64 [n], by the Fisher-Yates shuffle: for i = n - 1 .. 1 it swaps elements i
/// and j, where j is drawn as by randint(0, i + 1) from words 2i and 2i + 1. For a GPU it is computed on the CPU and
/// copied. Throws ValueError for a negative n.
TANDEM_OP Tensor randperm(int64_t n, Device device = {}, Generator* generator = nullptr);

/// 1 with probability p_i, else 0: 1 where rand's float64 value i is below p_i. The result has p's shape, dtype and
/// device. Throws DTypeError unless p is floating, ValueError naming the first p_i outside [0, 1] and its position.
TANDEM_OP Tensor bernoulli(const Tensor& p, Generator* generator = nullptr);

/// Indices drawn with probabilities proportional to a row of weights: int64 [N, num_samples] for weights [N, C], int64
/// [num_samples] for [C]. An index of weight 0 is never drawn.
///
/// With replacement, sample s of a row is the first index whose partial sum of weights exceeds u_s times their total,
/// where u_s is rand's float64 value s of the row (rows one after the other). Without replacement, the samples are the
/// num_samples smallest of -ln(1 - u_c) / weight_c in ascending order, where u_c is rand's float64 value c of the row
/// (P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", 2006). All in float64. Rows of
/// float64 are first scaled by a power of two, so that finite weights of any size are drawn in proportion.
///
/// Throws DTypeError unless input is floating, ShapeError unless it has one or two dimensions, ValueError
/// unless num_samples >= 1. Throws ValueError naming the first row that has a negative or non-finite weight, has a sum
/// of 0, or has fewer than num_samples positive weights for sampling without replacement.
TANDEM_OP Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement = false,
                             Generator* generator = nullptr);

/// x_i / (1 - p) where w_i >= p * 2^32 (rounded), else 0. x itself if not training or p = 0; then no numbers are drawn.
///
/// Any floating dtype, shape, strides. Saves the position of the stream, from which backward draws the same mask. The
/// gradient is the same function of d y. Throws DTypeError, ValueError unless 0 <= p <= 1.
/// N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
TANDEM_OP Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);

/// dropout of whole channels: of input [N, C, L] or [C, L] (dropout1d), [N, C, H, W] or [N, C, L] (dropout2d); other
/// shapes throw ShapeError. Word i decides on channel i in row-major order. Saves the factor of each channel; else as
/// in dropout. J. Tompson et al., "Efficient object localization using convolutional networks", 2015.
TANDEM_OP Tensor dropout1d(const Tensor& input, double p = 0.5, bool training = true, Generator* generator = nullptr);
TANDEM_OP Tensor dropout2d(const Tensor& input, double p = 0.5, bool training = true,
                           Generator* generator = nullptr);  ///< of images

// The in-place forms are members of Tensor. They overwrite self, of any strides, in row-major order of its elements:
// normal_ mean + std * randn; uniform_ from + (to - from) * rand of self's dtype; exponential_ -ln(1 - rand) / lambd;
// each in float32 or float64 and rounded to self's dtype, which must be floating (DTypeError); bernoulli_ 1 where
// rand's float64 value is below p, else 0, in any dtype. uniform_ never returns `to`, as rounded to the dtype, but the
// largest number below it, unless `from` rounds to the same number. exponential_ never returns 0: where rand is 0, half
// of its step replaces it, and a result that would round to 0 becomes the smallest positive number. They throw
// ValueError unless std >= 0, from <= to, lambd > 0, 0 <= p <= 1, and if to - from is not finite in float32 (float64
// for float64); and StateError as the other in-place forms (ops/elementwise.h).

}}  // namespace tandem::v0
