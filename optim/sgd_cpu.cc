#include <tandem/base/parallel_for.h>
#include <tandem/optim/sgd_kernels.h>

namespace tandem { inline namespace v0 { namespace optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;  // 128 KiB of float32: well above what handing a piece out costs

/// The step for [begin, end): loops without branches, which become vector instructions.
template <class T, bool has_decay, Momentum kind, bool is_nesterov>
void piece(int64_t begin, int64_t end, const T* __restrict gradient, const SgdFactors<T>& by, T* __restrict parameter,
           T* __restrict buffer) {
  const SgdFactors<T> f = by;  // the loop's stores cannot change a copy
  for (int64_t i = begin; i < end; ++i) {
    sgd_element<has_decay, kind, is_nesterov>(f, gradient[i], parameter[i], buffer + (kind == Momentum::kNone ? 0 : i));
  }
}

template <class T>
void run(const SgdStep& step, std::span<const SgdTensors> tensors) {
  const SgdFactors<T> factors(step);
  visit_sgd(step, [&]<bool has_decay, Momentum kind, bool is_nesterov>() {
    for (const SgdTensors& t : tensors) {
      parallel_for(t.n, kGrain, [&](int64_t begin, int64_t end) {
        piece<T, has_decay, kind, is_nesterov>(begin, end, static_cast<const T*>(t.gradient), factors,
                                               static_cast<T*>(t.parameter), static_cast<T*>(t.buffer));
      });
    }
  });
}

}  // namespace

void sgd(const KernelContext&, DType dtype, const SgdStep& step, std::span<const SgdTensors> tensors) {
  dtype == kFloat64 ? run<double>(step, tensors) : run<float>(step, tensors);
}

}}}  // namespace tandem::v0::optim::cpu
