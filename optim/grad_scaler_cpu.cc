#include <atomic>

#include <tandem/base/parallel_for.h>
#include <tandem/optim/grad_scaler_kernels.h>

namespace tandem { inline namespace v0 { namespace optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;

template <class T>
bool unscale_values(int64_t n, Accumulator<T> factor, T* values) {
  std::atomic<bool> found{false};
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    Accumulator<T> sum = 0;  // of value * 0, which is 0 for finite values and NaN for others
    for (int64_t i = begin; i < end; ++i) {
      const Accumulator<T> value = values[i];
      sum += value * 0;
      values[i] = T(value * factor);
    }
    if (sum != 0) found.store(true, std::memory_order_relaxed);  // NaN
  });
  return found;
}

}  // namespace

void unscale(const KernelContext&, DType dtype, std::span<const Values> tensors, double factor, const double*,
             int32_t* found) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for (const Values& t : tensors) {
      if (unscale_values(t.n, static_cast<Accumulator<T>>(factor), static_cast<T*>(t.data))) *found = 1;
    }
  });
}

}}}  // namespace tandem::v0::optim::cpu
