#include <tandem/base/parallel_for.h>
#include <tandem/optim/adam_kernels.h>

namespace tandem { inline namespace v0 { namespace optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;  // 128 KiB of float32: well above what handing a piece out costs

/// The step for [begin, end): loops without branches, which become vector instructions.
template <class T, Decay decay, bool is_first>
void piece(int64_t begin, int64_t end, const T* __restrict gradient, const AdamFactors<T>& by, T* __restrict parameter,
           T* __restrict mean, T* __restrict square) {
  const AdamFactors<T> f = by;  // the loop's stores cannot change a copy
  for (int64_t i = begin; i < end; ++i) adam_element<decay, is_first>(f, gradient[i], parameter[i], mean[i], square[i]);
}

template <class T, bool is_first>
auto choose(const AdamStep& step) {
  switch (decay_of(step)) {
    case Decay::kNone: return &piece<T, Decay::kNone, is_first>;
    case Decay::kIntoGradient: return &piece<T, Decay::kIntoGradient, is_first>;
    default: return &piece<T, Decay::kDecoupled, is_first>;
  }
}

template <class T>
void run(const AdamStep& step, std::span<const AdamTensors> tensors) {
  const auto f = step.number == 1 ? choose<T, true>(step) : choose<T, false>(step);
  const AdamFactors<T> factors(step);
  for (const AdamTensors& t : tensors) {
    parallel_for(t.n, kGrain, [&](int64_t begin, int64_t end) {
      f(begin, end, static_cast<const T*>(t.gradient), factors, static_cast<T*>(t.parameter), static_cast<T*>(t.mean),
        static_cast<T*>(t.square));
    });
  }
}

}  // namespace

void adam(const KernelContext&, DType dtype, const AdamStep& step, std::span<const AdamTensors> tensors) {
  dtype == kFloat64 ? run<double>(step, tensors) : run<float>(step, tensors);
}

}}}  // namespace tandem::v0::optim::cpu
