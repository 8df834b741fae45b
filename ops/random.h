// Random tensors.
//
// Every value is a pure function of the generator's position (seed, rank, device number, offset) and of the element's
// number i in row-major order: the same bits for any number of threads and for thread or process ranks.  w_i stands for
// the stream's i-th 32-bit word from there on (tensor/generator.h).  `generator` null: default_generator(device).  Nothing
// here but dropout has a gradient.
//
// A GPU draws the CPU's bits, except where logarithms, cosines and sines are taken (randn, multinomial without replacement): the
// last bits of the GPU's own float64 functions may differ, so float64 values may, others hardly ever.  What is wrong with values
// in a GPU's memory (bernoulli's, multinomial's) is told at the next synchronisation (tensor/cuda.h), of any one that is wrong.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Uniform in [0, 1).  float32: (w_i >> 8) / 2^24.  float64: ((w_2i >> 5) * 2^26 + (w_2i+1 >> 6)) / 2^53.  float16: the
/// upper 11 bits of w_i / 2^11; bfloat16: the upper 8 / 2^8.  Throws DTypeError for other dtypes.
TANDEM_OP Tensor rand(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr);

/// Normal with mean 0 and variance 1, in pairs: G. E. P. Box, M. E. Muller, "A note on the generation of random normal
/// deviates", 1958.  Values 2j and 2j + 1 are r cos(t) and r sin(t), r = sqrt(-2 ln(1 - u)), t = 2 pi v, where u and v are
/// rand's uniform values 2j and 2j + 1 (float64's for float64, else float32's), computed in float64 and rounded once.
/// Throws DTypeError for a dtype that is not floating.
TANDEM_OP Tensor randn(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr);

/// Uniform integers in [low, high): low + floor((w_2i + 2^32 w_2i+1) * (high - low) / 2^64).  A value's probability is off by
/// less than 2^-64, which no test notices below 2^32 values apart.  Throws ValueError unless low < high and both fit the
/// dtype; DTypeError for bool.
TANDEM_OP Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {kInt64},
                         Generator* generator = nullptr);

/// A permutation of 0 .. n - 1, int64 [n], all equally likely: Fisher and Yates' shuffle, which for i = n - 1 .. 1 swaps the
/// elements i and j, j drawn as by randint(0, i + 1) from words 2i and 2i + 1.  For a GPU it is made on the CPU and copied.
/// Throws ValueError for a negative n.
TANDEM_OP Tensor randperm(int64_t n, Device device = {}, Generator* generator = nullptr);

/// 1 with probability p_i, else 0, of p's shape, dtype and device: 1 where rand's float64 value i is below p_i.
/// Throws DTypeError unless p is floating, ValueError naming the first p_i outside [0, 1] and its position.
TANDEM_OP Tensor bernoulli(const Tensor& p, Generator* generator = nullptr);

/// Indices drawn with the probabilities that a row of weights says, up to a factor: int64 [N, num_samples] for weights [N, C],
/// int64 [num_samples] for [C].  An index of weight 0 is never drawn.
///
/// With replacement each of a row's samples s is the first index whose partial sum of weights exceeds u_s times their total,
/// u_s being rand's float64 value s of the row (values N-major).  Without, the indices are drawn one after the other from
/// those that are left: the num_samples smallest of -ln(1 - u_c) / weight_c in ascending order, u_c being rand's float64 value
/// c of the row (P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", 2006).  All in float64.
///
/// Throws DTypeError unless probabilities are floating, ShapeError for other than one or two dimensions, ValueError unless
/// num_samples >= 1, and ValueError naming the first row that holds a negative or not finite number, whose sum is 0, or that
/// has fewer than num_samples positive ones to draw without replacement.
TANDEM_OP Tensor multinomial(const Tensor& probabilities, int64_t num_samples, bool replacement = false,
                             Generator* generator = nullptr);

/// x_i / (1 - p) where w_i >= p * 2^32, else 0; x itself where not training or p = 0 (no numbers are drawn then).
///
/// Any floating dtype, shape, strides.  Saves the stream's position: backward draws the same mask again.  Its gradient is
/// the same function of d y.  Throws DTypeError, ValueError unless 0 <= p < 1.
/// N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
TANDEM_OP Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);

}}  // namespace tandem::v0
