#include <array>
#include <cmath>
#include <vector>

#include <tandem/base/parallel_for.h>
#include <tandem/optim/clip_grad_kernels.h>

namespace tandem { inline namespace v0 { namespace optim::cpu {

namespace {

constexpr int64_t kGrain = 1 << 15;
// Partial sums per block. Results depend on this number, because it defines the order of summation.
constexpr int64_t kPartialSums = 8;

/// The larger of a and b; NaN if one of them is NaN.
double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }
double add(double a, double b) { return a + b; }

/// Reduces term(x) of n values: first into partial sum i % kPartialSums of each block, then over the partial sums, then
/// over the blocks.
template <class T, class Term, class Fold>
double fold_all(int64_t n, const T* values, Term term, Fold fold) {
  std::vector<double> partial(static_cast<size_t>((n + kGrain - 1) / kGrain));
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    std::array<double, kPartialSums> sums = {};
    int64_t i = begin;
    for (; i + kPartialSums <= end; i += kPartialSums) {
      for (int64_t s = 0; s < kPartialSums; ++s) {
        double& sum = sums[static_cast<size_t>(s)];
        sum = fold(sum, term(static_cast<double>(values[i + s])));
      }
    }
    for (int64_t s = 0; i < end; ++i, ++s) {
      double& sum = sums[static_cast<size_t>(s)];
      sum = fold(sum, term(static_cast<double>(values[i])));
    }
    double sum = 0;
    for (const double partial_sum : sums) sum = fold(sum, partial_sum);
    partial[static_cast<size_t>(begin / kGrain)] = sum;
  });
  double sum = 0;
  for (const double block_sum : partial) sum = fold(sum, block_sum);
  return sum;
}

template <class T>
double sum_of_terms(int64_t n, const T* values, double norm_type) {
  // Separate loops for the usual norms, which the compiler vectorizes.
  if (std::isinf(norm_type))
    return fold_all(
        n, values, [](double x) { return std::abs(x); }, larger);
  if (norm_type == 1)
    return fold_all(
        n, values, [](double x) { return std::abs(x); }, add);
  if (norm_type == 2)
    return fold_all(
        n, values, [](double x) { return x * x; }, add);
  return fold_all(n, values, NormTerm{norm_type}, add);
}

/// values = Map<T>{by}(values), where T is the dtype of the arithmetic.
template <template <class> class Map>
void map_values(DType dtype, std::span<const Values> tensors, double by) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Map<Accumulator<T>> map{static_cast<Accumulator<T>>(by)};
    for (const Values& t : tensors) {
      T* const values = static_cast<T*>(t.data);
      parallel_for(t.n, kGrain, [&](int64_t begin, int64_t end) {
        const auto own = map;  // a copy that the loop's stores cannot alias
        for (int64_t i = begin; i < end; ++i) values[i] = T(own(values[i]));
      });
    }
  });
}

}  // namespace

int64_t num_norm_parts(const KernelContext&, std::span<const Values> tensors) {
  return static_cast<int64_t>(tensors.size());
}

void norm_parts(const KernelContext&, DType dtype, std::span<const Values> tensors, double norm_type, double* parts) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for (const Values& t : tensors) *parts++ = sum_of_terms(t.n, static_cast<const T*>(t.data), norm_type);
  });
}

void norm_of_parts(const KernelContext&, int64_t n, const double* parts, double norm_type, double* sum, double* norm) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total = std::isinf(norm_type) ? larger(total, parts[i]) : total + parts[i];
  *sum = total;
  *norm = norm_of(total, norm_type);
}

void clip_to_norm(const KernelContext&, DType dtype, std::span<const Values> tensors, double max_norm,
                  const double* norm) {
  const double factor = clip_factor(max_norm, *norm);
  if (!(factor >= 1)) map_values<ScaleValue>(dtype, tensors, factor);  // NaN is stored
}

void clip(const KernelContext&, DType dtype, std::span<const Values> tensors, double limit) {
  map_values<ClipValue>(dtype, tensors, limit);
}

}}}  // namespace tandem::v0::optim::cpu
