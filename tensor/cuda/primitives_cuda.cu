#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/tensor/convert.h>
#include <tandem/tensor/cuda/packed.h>
#include <tandem/tensor/cuda/primitives_kernels.h>
#include <tandem/tensor/cuda/strided.h>
#include <tandem/tensor/sum_order.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <class T>
std::span<const int64_t> span_of(const T& shape) {
  return {shape.data(), shape.size()};
}

/// The strides of tensors of one shape: dimensions in the order of the first tensor's memory, so that threads access
/// adjacent elements, and merged where all tensors are contiguous.
template <size_t N>
Strided<static_cast<int>(N)> elements_of(const std::array<const Tensor*, N>& tensors) {
  const Shape& shape = tensors[0]->shape();
  Shape dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) dims.push_back(static_cast<int64_t>(d));
  }
  const Shape& steps_of_first = tensors[0]->strides();
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int64_t a, int64_t b) { return steps_of_first[a] > steps_of_first[b]; });

  Shape sizes;
  std::array<Shape, N> strides;
  for (const int64_t d : dims) {
    bool joins = !sizes.empty();
    for (size_t k = 0; k < N; ++k) joins = joins && strides[k].back() == shape[d] * tensors[k]->strides()[d];
    if (joins) {
      sizes.back() *= shape[d];
    } else {
      sizes.push_back(shape[d]);
    }
    for (size_t k = 0; k < N; ++k) {
      if (!joins) strides[k].push_back(0);
      strides[k].back() = tensors[k]->strides()[d];
    }
  }
  std::array<std::span<const int64_t>, N> steps;
  for (size_t k = 0; k < N; ++k) steps[k] = span_of(strides[k]);
  return {span_of(sizes), steps};
}

template <class T>
constexpr bool kIsNetworkType = kIsHalf<T> || std::is_same_v<T, float>;

/// Elements per pack: one access of 16 bytes of the widest operand, so that adjacent threads access adjacent bytes. 1,
/// no packs, for the dtypes that do not matter for a network's speed.
template <class... T>
constexpr int kPackOf = (kIsNetworkType<T> && ...) ? static_cast<int>(16 / std::max({sizeof(T)...})) : 1;

// Formulas of one element of strided operands, and of one pack of contiguous ones of n elements.

template <class T>
struct Fill {
  static constexpr int kPack = kPackOf<T>;
  T* out;
  T value;
  int64_t n;
  __device__ void operator()(const int64_t (&at)[1]) const { out[at[0]] = value; }
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack > n) {
      for (int64_t i = begin; i < n; ++i) out[i] = value;
      return;
    }
    Pack<T, kPack> filled;
    for (int v = 0; v < kPack; ++v) filled.values[v] = value;
    store_pack(out + begin, filled, kPack);
  }
};

struct Range {
  uint64_t begin;
  uint64_t step;
  int64_t* out;
  __device__ void operator()(int64_t i) const {
    out[i] = static_cast<int64_t>(begin + static_cast<uint64_t>(i) * step);
  }
};

struct Linear {
  double base;
  int64_t shift;
  double step;
  double* out;
  __device__ void operator()(int64_t i) const { out[i] = base + static_cast<double>(i + shift) * step; }
};

template <class To, class From>
struct Copy {
  static constexpr int kPack = kPackOf<To, From>;
  To* out;
  const From* src;
  int64_t n;
  __device__ void operator()(const int64_t (&at)[2]) const { out[at[0]] = primitives::convert<To>(src[at[1]]); }
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack > n) {
      for (int64_t i = begin; i < n; ++i) out[i] = primitives::convert<To>(src[i]);
      return;
    }
    const auto from = load_pack<kPack>(src + begin, kPack);
    Pack<To, kPack> converted;
    for (int v = 0; v < kPack; ++v) converted.values[v] = primitives::convert<To>(from.values[v]);
    store_pack(out + begin, converted, kPack);
  }
};

template <class T>
struct AddInto {
  static constexpr int kPack = kPackOf<T>;
  T* out;
  const T* src;
  int64_t n;
  __device__ void operator()(const int64_t (&at)[2]) const { out[at[0]] = primitives::add(out[at[0]], src[at[1]]); }
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack > n) {
      for (int64_t i = begin; i < n; ++i) out[i] = primitives::add(out[i], src[i]);
      return;
    }
    auto sum = load_pack<kPack>(out + begin, kPack);
    const auto more = load_pack<kPack>(src + begin, kPack);
    for (int v = 0; v < kPack; ++v) sum.values[v] = primitives::add(sum.values[v], more.values[v]);
    store_pack(out + begin, sum, kPack);
  }
};

template <class T>
struct Compare {
  static constexpr int kPack = 1;
  const T* a;
  const T* b;
  int32_t* differ;
  __device__ void operator()(const int64_t (&at)[2]) const {
    if (a[at[0]] != b[at[1]]) atomicExch(differ, 1);
  }
};

template <class T, int pack_size>
struct Sum {
  static constexpr int kPack = pack_size;
  const T* inputs[primitives::kMaxGpuSumInputs];
  int num_inputs;
  T* out;
  int64_t n;
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack <= n) return add_all<kPack>(begin);
    for (int64_t i = begin; i < n; ++i) add_all<1>(i);
  }

 private:
  template <int count>
  __device__ void add_all(int64_t begin) const {
    using Wide = std::conditional_t<kIsHalf<T>, float, T>;
    const auto term = [&](int64_t k) {
      const auto terms = load_pack<count>(inputs[k] + begin, count);
      Pack<Wide, count> wide;
      for (int v = 0; v < count; ++v) wide.values[v] = static_cast<Wide>(terms.values[v]);
      return wide;
    };
    const auto add = [](Pack<Wide, count> a, const Pack<Wide, count>& b) {
      for (int v = 0; v < count; ++v) a.values[v] = primitives::add<Wide>(a.values[v], b.values[v]);
      return a;
    };
    static_assert(primitives::kMaxGpuSumInputs <= 1 << 6);
    const auto sum = primitives::tree_sum<6>(num_inputs, term, add);
    Pack<T, count> rounded;
    for (int v = 0; v < count; ++v) rounded.values[v] = static_cast<T>(sum.values[v]);
    store_pack(out + begin, rounded, count);
  }
};

/// Computes f for all elements: by packs, if all tensors are contiguous and aligned.
template <size_t N, class F>
void for_each(const KernelContext& context, const std::array<const Tensor*, N>& tensors, const F& f) {
  const auto where = elements_of<N>(tensors);
  if constexpr (F::kPack > 1) {
    bool is_packed = where.num_dims == 1;
    for (size_t k = 0; k < N; ++k) {
      is_packed = is_packed && where.strides[k][0] == 1 && is_aligned_for_packs(tensors[k]->data_ptr());
    }
    if (is_packed) return for_each_index(context, ceil_div<int64_t>(where.num_elements, F::kPack), f);
  }
  for_each_element(context, where, f);
}

/// Calls f.operator()<T>() with the unsigned integer type of the dtype's size.
template <class F>
void visit_size(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

template <class T>
T* data_as(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data_ptr());
}

constexpr int kNumbersOfLaunch = 256;
struct Numbers {
  double values[kNumbersOfLaunch];
};

__global__ void write_numbers_kernel(const __grid_constant__ Numbers numbers, int count, double* out) {
  if (const int i = static_cast<int>(threadIdx.x); i < count) out[i] = numbers.values[i];
}

}  // namespace

void write_numbers(const KernelContext& context, std::span<const double> numbers, double* out) {
  for (size_t begin = 0; begin < numbers.size(); begin += kNumbersOfLaunch) {
    const std::span<const double> part =
        numbers.subspan(begin, std::min<size_t>(kNumbersOfLaunch, numbers.size() - begin));
    Numbers now = {};
    std::copy(part.begin(), part.end(), now.values);
    launch_kernel(context, write_numbers_kernel, 1, kNumbersOfLaunch, 0, now, static_cast<int>(part.size()),
                  out + begin);
  }
}

void fill_elements(const KernelContext& context, const Tensor& out, Scalar value) {
  visit_dtype(out.dtype(), [&]<class T>() {
    const T element =
        value.dtype() == kFloat64 ? primitives::convert<T>(value.to_double()) : primitives::convert<T>(value.to_int());
    for_each<1>(context, {&out}, Fill<T>{data_as<T>(out), element, out.numel()});
  });
}

void range_elements(const KernelContext& context, int64_t begin, int64_t step, int64_t n, int64_t* out) {
  for_each_index(context, n, Range{static_cast<uint64_t>(begin), static_cast<uint64_t>(step), out});
}

void linear_elements(const KernelContext& context, double base, int64_t shift, double step, int64_t n, double* out) {
  for_each_index(context, n, Linear{base, shift, step, out});
}

void copy_elements(const KernelContext& context, const Tensor& src, const Tensor& out) {
  const int64_t n = out.numel();
  if (src.dtype() == out.dtype()) {
    visit_size(src.dtype(), [&]<class T>() {
      for_each<2>(context, {&out, &src}, Copy<T, T>{data_as<T>(out), data_as<const T>(src), n});
    });
    return;
  }
  visit_dtype(src.dtype(), [&]<class From>() {
    visit_dtype(out.dtype(), [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) {
        for_each<2>(context, {&out, &src}, Copy<To, From>{data_as<To>(out), data_as<const From>(src), n});
      }
    });
  });
}

void add_elements(const KernelContext& context, const Tensor& src, const Tensor& out) {
  visit_dtype(out.dtype(), [&]<class T>() {
    for_each<2>(context, {&out, &src}, AddInto<T>{data_as<T>(out), data_as<const T>(src), out.numel()});
  });
}

void sum_elements(const KernelContext& context, DType dtype, std::span<const std::byte* const> inputs, int64_t n,
                  std::byte* out) {
  visit_dtype(dtype, [&]<class T>() {
    const auto run = [&]<int pack_size>(std::integral_constant<int, pack_size>) {
      Sum<T, pack_size> sum{{}, static_cast<int>(inputs.size()), reinterpret_cast<T*>(out), n};
      for (size_t k = 0; k < inputs.size(); ++k) sum.inputs[k] = reinterpret_cast<const T*>(inputs[k]);
      for_each_index(context, ceil_div<int64_t>(n, pack_size), sum);
    };
    const bool is_aligned =
        is_aligned_for_packs(out) && std::all_of(inputs.begin(), inputs.end(), is_aligned_for_packs);
    is_aligned ? run(std::integral_constant<int, kPackOf<T>>()) : run(std::integral_constant<int, 1>());
  });
}

void compare_elements(const KernelContext& context, const Tensor& a, const Tensor& b, int32_t* differ) {
  visit_size(a.dtype(), [&]<class T>() {
    for_each<2>(context, {&a, &b}, Compare<T>{data_as<const T>(a), data_as<const T>(b), differ});
  });
}

}}}  // namespace tandem::v0::cuda
