#include <cmath>

#include <tandem/base/parallel_for.h>
#include <tandem/optim/adam_kernels.h>

namespace tandem::inline v0::optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;  // 128 KiB of float32: well above what handing a piece out costs

enum class Decay { kNone, kIntoGradient, kDecoupled };

/// The step's numbers as the loop uses them.
template <class T>
struct Factors {
  explicit Factors(const AdamStep& step)
      : weight_decay(static_cast<T>(step.weight_decay)),
        shrink(static_cast<T>(1 - step.lr * step.weight_decay)),
        old_mean(static_cast<T>(step.beta1)),
        new_mean(static_cast<T>(1 - step.beta1)),
        old_square(static_cast<T>(step.beta2)),
        new_square(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)) {
    const auto number = static_cast<double>(step.number);
    size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, number)));
    root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(step.beta2, number)));
  }

  T weight_decay;
  T shrink;
  T old_mean;
  T new_mean;
  T old_square;
  T new_square;
  T eps;
  T size;        ///< lr / (1 - beta1^t)
  T root_scale;  ///< 1 / sqrt(1 - beta2^t)
};

/// The step for [begin, end).  What does not change from value to value is a template parameter, so that each loop is
/// branch-free and the compiler turns it into vector instructions.
template <class T, Decay kDecay, bool kFirst>
void piece(int64_t begin, int64_t end, const T* __restrict gradient, const Factors<T>& by, T* __restrict parameter,
           T* __restrict mean, T* __restrict square) {
  const Factors<T> f = by;  // the loop's stores cannot change a copy
  for (int64_t i = begin; i < end; ++i) {
    T p = parameter[i];
    T g = gradient[i];
    if constexpr (kDecay == Decay::kDecoupled) p *= f.shrink;
    if constexpr (kDecay == Decay::kIntoGradient) g += f.weight_decay * p;
    const T m = kFirst ? f.new_mean * g : f.old_mean * mean[i] + f.new_mean * g;
    const T v = kFirst ? f.new_square * g * g : f.old_square * square[i] + f.new_square * g * g;
    mean[i] = m;
    square[i] = v;
    parameter[i] = p - f.size * (m / (std::sqrt(v) * f.root_scale + f.eps));
  }
}

template <class T, bool kFirst>
auto choose(const AdamStep& step) {
  if (step.weight_decay == 0) return &piece<T, Decay::kNone, kFirst>;
  return step.decoupled ? &piece<T, Decay::kDecoupled, kFirst> : &piece<T, Decay::kIntoGradient, kFirst>;
}

}  // namespace

template <class T>
void adam(const KernelContext&, int64_t n, const T* gradient, const AdamStep& step, T* parameter, T* mean, T* square) {
  const auto f = step.number == 1 ? choose<T, true>(step) : choose<T, false>(step);
  const Factors<T> factors(step);
  parallel_for(n, kGrain,
               [&](int64_t begin, int64_t end) { f(begin, end, gradient, factors, parameter, mean, square); });
}

template void adam(const KernelContext&, int64_t, const float*, const AdamStep&, float*, float*, float*);
template void adam(const KernelContext&, int64_t, const double*, const AdamStep&, double*, double*, double*);

}  // namespace tandem::inline v0::optim::cpu
