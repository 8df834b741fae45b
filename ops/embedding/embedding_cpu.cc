// CPU kernels of embedding.
#include <algorithm>
#include <cstring>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/embedding/embedding_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;
/// Columns that are summed together.
constexpr int64_t kStripe = 128;
/// Uses of a row that are summed in sequence; then the sums of such runs are added.
constexpr int64_t kRun = 64;

int64_t row_grain(int64_t d) { return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, d)); }

}  // namespace

void embedding(const KernelContext&, int64_t element_bytes, int64_t n, int64_t, int64_t d, const int64_t* indices,
               const void* weight, void* out) {
  const int64_t row_bytes = d * element_bytes;
  if (row_bytes == 0) return;
  parallel_for(n, row_grain(d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<std::byte*>(out) + i * row_bytes,
                  static_cast<const std::byte*>(weight) + indices[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

int64_t embedding_backward_workspace_bytes(const KernelContext&, int64_t n, int64_t rows) {
  return (n + rows + 1) * static_cast<int64_t>(sizeof(int64_t));
}

void embedding_backward(const KernelContext&, DType dtype, int64_t n, int64_t rows, int64_t d, int64_t padding,
                        const int64_t* indices, const void* grad, bool accumulate, void* workspace, void* grad_weight) {
  // A counting sort lists the uses of each row: row r has uses[starts[r]] .. uses[starts[r + 1] - 1].
  int64_t* starts = static_cast<int64_t*>(workspace);
  int64_t* uses = starts + rows + 1;
  std::fill(starts, starts + rows + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++starts[indices[i]];
  for (int64_t r = 0, sum = 0; r <= rows; ++r) starts[r] = sum += r < rows ? starts[r] : 0;  // end of the row's uses
  for (int64_t i = n; i-- > 0;) uses[--starts[indices[i]]] = i;

  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    const T* from = static_cast<const T*>(grad);
    parallel_for(rows, row_grain(d), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* out = static_cast<T*>(grad_weight) + r * d;
        if (starts[r] == starts[r + 1] || r == padding) {
          if (!accumulate) std::fill(out, out + d, T(0));
          continue;
        }
        for (int64_t first = 0; first < d; first += kStripe) {
          const int64_t count = std::min(kStripe, d - first);
          C sum[kStripe] = {};
          for (int64_t run = starts[r]; run < starts[r + 1]; run += kRun) {
            C part[kStripe] = {};
            for (int64_t k = run; k < std::min(starts[r + 1], run + kRun); ++k) {
              const T* row = from + uses[k] * d + first;
              for (int64_t c = 0; c < count; ++c) part[c] += static_cast<C>(row[c]);
            }
            for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
          }
          for (int64_t c = 0; c < count; ++c) {
            out[first + c] = static_cast<T>(accumulate ? sum[c] + static_cast<C>(out[first + c]) : sum[c]);
          }
        }
      }
    });
  });
}

}}}  // namespace tandem::v0::cpu
