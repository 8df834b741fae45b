#include <algorithm>

#include <tandem/tensor/convert.h>
#include <tandem/tensor/cuda/primitives_kernels.h>
#include <tandem/tensor/cuda/strided.h>

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
struct Fill {
  T* out;
  T value;
  __device__ void operator()(const int64_t (&at)[1]) const { out[at[0]] = value; }
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
  To* out;
  const From* src;
  __device__ void operator()(const int64_t (&at)[2]) const { out[at[0]] = primitives::convert<To>(src[at[1]]); }
};

template <class T>
struct AddInto {
  T* out;
  const T* src;
  __device__ void operator()(const int64_t (&at)[2]) const { out[at[0]] = primitives::add(out[at[0]], src[at[1]]); }
};

template <class T>
struct Compare {
  const T* a;
  const T* b;
  int32_t* differ;
  __device__ void operator()(const int64_t (&at)[2]) const {
    if (a[at[0]] != b[at[1]]) atomicExch(differ, 1);
  }
};

template <class T>
struct Sum {
  const T* inputs[primitives::kMaxGpuSumInputs];
  int num_inputs;
  T* out;
  __device__ void operator()(int64_t i) const {
    using Wide = std::conditional_t<kIsHalf<T>, float, T>;
    Wide sum = static_cast<Wide>(inputs[0][i]);
    for (int k = 1; k < num_inputs; ++k) sum = primitives::add<Wide>(sum, static_cast<Wide>(inputs[k][i]));
    out[i] = static_cast<T>(sum);
  }
};

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
    for_each_element(context, elements_of<1>({&out}), Fill<T>{data_as<T>(out), element});
  });
}

void range_elements(const KernelContext& context, int64_t begin, int64_t step, int64_t n, int64_t* out) {
  for_each_index(context, n, Range{static_cast<uint64_t>(begin), static_cast<uint64_t>(step), out});
}

void linear_elements(const KernelContext& context, double base, int64_t shift, double step, int64_t n, double* out) {
  for_each_index(context, n, Linear{base, shift, step, out});
}

void copy_elements(const KernelContext& context, const Tensor& src, const Tensor& out) {
  const auto where = elements_of<2>({&out, &src});
  if (src.dtype() == out.dtype()) {
    visit_size(src.dtype(), [&]<class T>() {
      for_each_element(context, where, Copy<T, T>{data_as<T>(out), data_as<const T>(src)});
    });
    return;
  }
  visit_dtype(src.dtype(), [&]<class From>() {
    visit_dtype(out.dtype(), [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) {
        for_each_element(context, where, Copy<To, From>{data_as<To>(out), data_as<const From>(src)});
      }
    });
  });
}

void add_elements(const KernelContext& context, const Tensor& src, const Tensor& out) {
  visit_dtype(out.dtype(), [&]<class T>() {
    for_each_element(context, elements_of<2>({&out, &src}), AddInto<T>{data_as<T>(out), data_as<const T>(src)});
  });
}

void sum_elements(const KernelContext& context, DType dtype, std::span<const std::byte* const> inputs, int64_t n,
                  std::byte* out) {
  visit_dtype(dtype, [&]<class T>() {
    Sum<T> sum{{}, static_cast<int>(inputs.size()), reinterpret_cast<T*>(out)};
    for (size_t k = 0; k < inputs.size(); ++k) sum.inputs[k] = reinterpret_cast<const T*>(inputs[k]);
    for_each_index(context, n, sum);
  });
}

void compare_elements(const KernelContext& context, const Tensor& a, const Tensor& b, int32_t* differ) {
  visit_size(a.dtype(), [&]<class T>() {
    for_each_element(context, elements_of<2>({&a, &b}), Compare<T>{data_as<const T>(a), data_as<const T>(b), differ});
  });
}

}}}  // namespace tandem::v0::cuda
