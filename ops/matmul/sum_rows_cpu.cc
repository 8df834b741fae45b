// CPU kernels of sums over rows, the gradients of biases.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Columns per piece of a sum over rows, and rows that are summed in T's accumulator before the sum is added to the
/// total.
constexpr int64_t kColumnPiece = 256, kRowBlock = 32;

/// Writes the sums over all rows in dtype `result`. load(i, j, count, values) loads `count` values of row i from column
/// j on.
template <class T, class Load>
void sum_rows_of(DType result, int64_t rows, int64_t cols, double beta, void* out, Load load) {
  using Sum = Accumulator<T>;
  const int64_t grain = kColumnPiece * std::max<int64_t>(1, (1 << 16) / (kColumnPiece * std::max<int64_t>(1, rows)));
  parallel_for(cols, grain, [&](int64_t piece_begin, int64_t piece_end) {
    for (int64_t j = piece_begin; j < piece_end; j += kColumnPiece) {
      const int64_t count = std::min(kColumnPiece, piece_end - j);
      double total[kColumnPiece] = {};
      for (int64_t i = 0; i < rows; i += kRowBlock) {
        Sum block[kColumnPiece] = {};
        Sum values[kColumnPiece];
        for (int64_t row = i; row < std::min(rows, i + kRowBlock); ++row) {
          load(row, j, count, values);
          for (int64_t c = 0; c < count; ++c) block[c] += values[c];
        }
        for (int64_t c = 0; c < count; ++c) total[c] += static_cast<double>(block[c]);
      }
      if (out == nullptr) continue;
      const auto write = [&]<class R>(R* to) {
        for (int64_t c = 0; c < count; ++c) {
          const double old = beta == 0 ? 0.0 : beta * static_cast<double>(static_cast<Sum>(to[c]));
          to[c] = static_cast<R>(static_cast<Sum>(total[c] + old));
        }
      };
      result == dtype_of<Sum>() ? write(static_cast<Sum*>(out) + j) : write(static_cast<T*>(out) + j);
    }
  });
}

}  // namespace

int64_t sum_rows_workspace_bytes(const KernelContext&, DType, int64_t, int64_t) { return 0; }

void sum_rows(const KernelContext&, DType dtype, DType result, int64_t rows, int64_t cols, const void* grad,
              double beta, void*, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* source = static_cast<const T*>(grad);
    sum_rows_of<T>(result, rows, cols, beta, out, [=](int64_t i, int64_t j, int64_t count, Accumulator<T>* values) {
      const T* const row = source + i * cols + j;
      // Rows are pages apart, which hardware prefetchers do not cross.
      for (int64_t c = 0; c < count; c += 64 / sizeof(T)) __builtin_prefetch(row + 4 * cols + c);
      for (int64_t c = 0; c < count; ++c) values[c] = static_cast<Accumulator<T>>(row[c]);
    });
  });
}

void activation_and_sum_rows(const KernelContext&, FusedActivation, DType dtype, DType sum_dtype, int64_t rows,
                             int64_t cols, const void* grad, const void* saved, double beta, void* grad_in, void*,
                             void* bias_grad) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using Sum = Accumulator<T>;
    const T* source = static_cast<const T*>(grad);
    const T* result = static_cast<const T*>(saved);
    T* target = static_cast<T*>(grad_in);
    sum_rows_of<T>(sum_dtype, rows, cols, beta, bias_grad, [=](int64_t i, int64_t j, int64_t count, Sum* values) {
      const int64_t at = i * cols + j;
      const T* const __restrict gradients = source + at;
      const T* const __restrict results = result + at;
      Sum* const __restrict sums = values;
      // Loads the gradient unconditionally: the compiler vectorizes the loop only without branches.
      for (int64_t c = 0; c < count; ++c) {
        const Sum gradient = static_cast<Sum>(gradients[c]);
        sums[c] = static_cast<Sum>(results[c]) <= Sum(0) ? Sum(0) : gradient;
      }
      for (int64_t c = 0; c < count; ++c) target[at + c] = static_cast<T>(sums[c]);
    });
  });
}

}}}  // namespace tandem::v0::cpu
