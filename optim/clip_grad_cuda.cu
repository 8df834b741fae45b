#include <tandem/optim/clip_grad_kernels.h>
#include <tandem/optim/tensor_table_cuda.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

namespace {

using tandem::cuda::block_reduce;
using tandem::cuda::Larger;
using tandem::cuda::Plus;

using Table = TensorTable<1>;

struct Fold {
  bool largest;
  __device__ double operator()(double a, double b) const { return largest ? Larger()(a, b) : a + b; }
};

/// Calls f for packs of the values from `begin` on, a multiple of 16 bytes, to `end`. A pack has 16 bytes, or one value
/// if `values` is not aligned, and at the end.
template <class T, class F>
__device__ void for_packs_of_chunk(T* values, int64_t begin, int64_t end, const F& f) {
  constexpr int kPack = static_cast<int>(16 / sizeof(T));
  const int64_t packed_end = tandem::cuda::is_aligned_for_packs(values) ? end - (end - begin) % kPack : begin;
  for (int64_t i = begin + threadIdx.x * kPack; i < packed_end; i += blockDim.x * kPack) {
    f(*reinterpret_cast<tandem::cuda::Pack<T, kPack>*>(values + i));
  }
  for (int64_t i = packed_end + threadIdx.x; i < end; i += blockDim.x) {
    f(*reinterpret_cast<tandem::cuda::Pack<T, 1>*>(values + i));
  }
}

/// The sum of each chunk, in the order of the tensors.
template <class T>
struct ChunkNorm {
  NormTerm term;
  Fold fold;
  double* sums;
  int64_t chunks_before = 0;

  void begin_at(int64_t chunks) { chunks_before = chunks; }
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t chunk) const {
    T* const values = static_cast<T*>(entry.data[0]);
    double sum = 0;
    if (term.norm_type == 2) {
      for_packs_of_chunk(values, begin, end, [&](auto pack) {
#pragma unroll
        for (const T value : pack.values) sum += static_cast<double>(value) * static_cast<double>(value);
      });
    } else {
      for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        sum = fold(sum, term(static_cast<double>(values[i])));
      }
    }
    sum = block_reduce(sum, 0.0, fold);
    if (threadIdx.x == 0) sums[chunks_before + chunk] = sum;
  }
};

__global__ void fold_kernel(int64_t n, Fold fold, const double* parts, double norm_type, double* sum, double* norm) {
  double total = tandem::cuda::fold_ahead<8>(
      n, 0.0, [&](int64_t i) { return parts[i]; }, fold);
  total = block_reduce(total, 0.0, fold);
  if (threadIdx.x != 0) return;
  *sum = total;
  *norm = norm_of(total, norm_type);
}

/// values = map(values).
template <class T, class Map>
struct MapValues {
  Map map;

  void begin_at(int64_t) {}
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t) const {
    for_packs_of_chunk(static_cast<T*>(entry.data[0]), begin, end, [&](auto& pack) {
      auto mapped = pack;
      for (T& value : mapped.values) value = T(map(value));
      pack = mapped;
    });
  }
};

/// values *= the factor of clip_to_norm.
template <class T>
struct ScaleToNorm {
  double max_norm;
  const double* norm;

  void begin_at(int64_t) {}
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t chunk) const {
    const double factor = clip_factor(max_norm, *norm);
    if (factor >= 1) return;  // false for NaN
    using A = Accumulator<T>;
    MapValues<T, ScaleValue<A>>{{static_cast<A>(factor)}}(entry, begin, end, chunk);
  }
};

template <class F>
void for_each(const KernelContext& context, std::span<const Values> tensors, F f) {
  for_each_chunk<1>(
      context, tensors.size(),
      [&](size_t i) {
        return Table::Entry{{tensors[i].data}, tensors[i].n, 0};
      },
      f);
}

template <template <class> class Map>
void map_values(const KernelContext& context, DType dtype, std::span<const Values> tensors, double by) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    for_each(context, tensors, MapValues<T, Map<A>>{{static_cast<A>(by)}});
  });
}

}  // namespace

int64_t num_norm_parts(const KernelContext&, std::span<const Values> tensors) {
  int64_t chunks = 0;
  for (const Values& t : tensors) chunks += num_chunks(t.n);
  return chunks;
}

void norm_parts(const KernelContext& context, DType dtype, std::span<const Values> tensors, double norm_type,
                double* parts) {
  const NormTerm term{norm_type};
  const Fold fold{std::isinf(norm_type)};
  visit_floating_dtype(dtype, [&]<class T>() { for_each(context, tensors, ChunkNorm<T>{term, fold, parts}); });
}

void norm_of_parts(const KernelContext& context, int64_t n, const double* parts, double norm_type, double* sum,
                   double* norm) {
  const Fold fold{std::isinf(norm_type)};
  tandem::cuda::launch_kernel(context, fold_kernel, 1, tandem::cuda::threads_for_row(n), 0, n, fold, parts, norm_type,
                              sum, norm);
}

void clip_to_norm(const KernelContext& context, DType dtype, std::span<const Values> tensors, double max_norm,
                  const double* norm) {
  visit_floating_dtype(dtype, [&]<class T>() { for_each(context, tensors, ScaleToNorm<T>{max_norm, norm}); });
}

void clip(const KernelContext& context, DType dtype, std::span<const Values> tensors, double limit) {
  map_values<ClipValue>(context, dtype, tensors, limit);
}

}}}  // namespace tandem::v0::optim::cuda
