// CPU kernels of losses.
#include <algorithm>
#include <cmath>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/loss/loss_kernels.h>
#include <tandem/ops/softmax/row_math.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

/// Calls f(begin, end) for pieces of n rows.
template <class F>
void for_rows(int64_t n, int64_t classes, const F& f) {
  parallel_for(n, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, classes)),
               [&](int64_t begin, int64_t end) { run_wide([&] { f(begin, end); }); });
}

}  // namespace

void cross_entropy_rows(const KernelContext&, DType dtype, int64_t n, int64_t classes, const void* logits,
                        const int64_t* labels, int64_t ignore_index, void* shifts, double* losses) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = RowCompute<T>;
    for_rows(n, classes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (labels[i] == ignore_index) {
          losses[i] = 0;
          continue;
        }
        const T* x = static_cast<const T*>(logits) + i * classes;
        const C max = row_max(x, classes);
        const C sum = row_sum<C>(classes, [&](int64_t j) { return exp_of_nonpositive(static_cast<C>(x[j]) - max); });
        const C logarithm = std::log(sum);
        static_cast<C*>(shifts)[2 * i] = max;
        static_cast<C*>(shifts)[2 * i + 1] = logarithm;
        losses[i] = static_cast<double>(logarithm) + static_cast<double>(max - static_cast<C>(x[labels[i]]));
      }
    });
  });
}

void mean_of_losses(const KernelContext&, DType dtype, int64_t n, const int64_t* labels, int64_t ignore_index,
                    const double* losses, void* shifts, void* out) {
  const int64_t count = n - std::count(labels, labels + n, ignore_index);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += losses[i];
  const double mean = sum / static_cast<double>(count);
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = RowCompute<T>;
    static_cast<C*>(shifts)[2 * n] = static_cast<C>(count);
    *static_cast<T*>(out) = static_cast<T>(mean);
  });
}

void cross_entropy_backward(const KernelContext&, DType dtype, int64_t n, int64_t classes, const void* logits,
                            const int64_t* labels, int64_t ignore_index, const void* shifts, const void* grad,
                            void* grad_logits) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = RowCompute<T>;
    const C scale = *static_cast<const C*>(grad) / static_cast<const C*>(shifts)[2 * n];
    for_rows(n, classes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* x = static_cast<const T*>(logits) + i * classes;
        T* out = static_cast<T*>(grad_logits) + i * classes;
        if (labels[i] == ignore_index) {
          std::fill_n(out, classes, static_cast<T>(C(0)));
          continue;
        }
        const C max = static_cast<const C*>(shifts)[2 * i], logarithm = static_cast<const C*>(shifts)[2 * i + 1];
        auto probability = [&](int64_t j) { return exp_of_nonpositive((static_cast<C>(x[j]) - max) - logarithm); };
        const int64_t label = labels[i];
        const T at_label = static_cast<T>((probability(label) - C(1)) * scale);
        // x and out are the same memory or do not overlap.
        TANDEM_IVDEP
        for (int64_t j = 0; j < classes; ++j) out[j] = static_cast<T>(probability(j) * scale);
        out[label] = at_label;
      }
    });
  });
}

}}}  // namespace tandem::v0::cpu
