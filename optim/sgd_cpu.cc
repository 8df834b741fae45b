#include <tandem/base/parallel_for.h>
#include <tandem/optim/sgd_kernels.h>

namespace tandem::inline v0::optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;  // 128 KiB of float32: well above what handing a piece out costs

enum class Momentum { kNone, kFirst, kLater };

/// The step for [begin, end).  What does not change from value to value is a template parameter, so that each loop is
/// branch-free and the compiler turns it into vector instructions.
template <class T, bool kDecay, Momentum kMomentum, bool kNesterov>
void piece(int64_t begin, int64_t end, const T* __restrict gradient, const SgdStep& step, T* __restrict parameter,
           T* __restrict buffer) {
  const T lr = static_cast<T>(step.lr);
  const T momentum = static_cast<T>(step.momentum);
  const T share = static_cast<T>(1 - step.dampening);
  const T decay = static_cast<T>(step.weight_decay);
  for (int64_t i = begin; i < end; ++i) {
    T direction = gradient[i];
    if constexpr (kDecay) direction += decay * parameter[i];
    if constexpr (kMomentum != Momentum::kNone) {
      const T next = kMomentum == Momentum::kFirst ? direction : momentum * buffer[i] + share * direction;
      buffer[i] = next;
      direction = kNesterov ? direction + momentum * next : next;
    }
    parameter[i] -= lr * direction;
  }
}

template <class T, bool kDecay>
auto choose(const SgdStep& step, bool has_buffer) {
  if (!has_buffer) return &piece<T, kDecay, Momentum::kNone, false>;
  if (step.first)
    return step.nesterov ? &piece<T, kDecay, Momentum::kFirst, true> : &piece<T, kDecay, Momentum::kFirst, false>;
  return step.nesterov ? &piece<T, kDecay, Momentum::kLater, true> : &piece<T, kDecay, Momentum::kLater, false>;
}

}  // namespace

template <class T>
void sgd(const KernelContext&, int64_t n, const T* gradient, const SgdStep& step, T* parameter, T* buffer) {
  const auto f =
      step.weight_decay != 0 ? choose<T, true>(step, buffer != nullptr) : choose<T, false>(step, buffer != nullptr);
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { f(begin, end, gradient, step, parameter, buffer); });
}

template void sgd(const KernelContext&, int64_t, const float*, const SgdStep&, float*, float*);
template void sgd(const KernelContext&, int64_t, const double*, const SgdStep&, double*, double*);

}  // namespace tandem::inline v0::optim::cpu
