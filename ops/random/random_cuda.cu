// GPU kernels of random tensors: one thread draws a Philox block and computes its values.
#include <tandem/ops/elementwise/elementwise_map_cuda.h>
#include <tandem/ops/index/topk_cuda.h>
#include <tandem/ops/random/random_kernels.h>
#include <tandem/tensor/cuda/device_error.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int kWordsOfBlock = 4;

/// out[i] for n values, F::kValues per Philox block. f(words, begin, count, values) computes the values from value
/// `begin` on, of which `count` are stored.
template <class T, class F>
struct Draw {
  PhiloxState state;
  int64_t n;
  T* out;
  F f;
  __device__ void operator()(int64_t block) const {
    constexpr int kValues = F::kValues;
    const int64_t begin = block * kValues;
    const int count = static_cast<int>(::min(int64_t{kValues}, n - begin));
    const std::array<uint32_t, kWordsOfBlock> words = state.block(static_cast<uint64_t>(block));
    Pack<T, kValues> pack;
    f(words.data(), begin, count, pack.values);
    if (count == kValues) {
      *reinterpret_cast<Pack<T, kValues>*>(out + begin) = pack;
    } else {
#pragma unroll
      for (int v = 0; v < kValues; ++v) {
        if (v < count) out[begin + v] = pack.values[v];
      }
    }
  }
};

template <class T, class F>
void draw(const KernelContext& context, PhiloxState state, int64_t n, T* out, F f) {
  for_each_index(context, (n + F::kValues - 1) / F::kValues, Draw<T, F>{state, n, out, f});
}

/// The `count` values from `from` on, and zeros; by one instruction if count is n and `from` is aligned.
template <int n, class T>
__device__ Pack<T, n> values_at(const T* from, int count) {
  using Values = Pack<T, n>;
  if (count == n && reinterpret_cast<uintptr_t>(from) % sizeof(Values) == 0)
    return *reinterpret_cast<const Values*>(from);
  Values values = {};
#pragma unroll
  for (int v = 0; v < n; ++v) {
    if (v < count) values.values[v] = from[v];
  }
  return values;
}

template <class T>
struct Uniform {
  static constexpr int kWords = words_per_uniform(dtype_of<T>());
  static constexpr int kValues = kWordsOfBlock / kWords;
  __device__ void operator()(const uint32_t* words, int64_t, int, T* values) const {
#pragma unroll
    for (int v = 0; v < kValues; ++v) values[v] = uniform_value<T>(words + v * kWords);
  }
};

template <class T>
struct Normal {
  static constexpr int kWords = words_per_uniform(dtype_of<T>());
  static constexpr int kValues = kWordsOfBlock / kWords;
  __device__ void operator()(const uint32_t* words, int64_t, int, T* values) const {
#pragma unroll
    for (int v = 0; v < kValues; v += 2) {
      const NormalPair<T> pair = normal_pair<T>(words + v * kWords);
      values[v] = pair.first;
      values[v + 1] = pair.second;
    }
  }
};

template <class T>
struct Integers {
  static constexpr int kValues = 2;
  int64_t low;
  uint64_t range;
  __device__ void operator()(const uint32_t* words, int64_t, int, T* values) const {
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      values[v] = static_cast<T>(static_cast<uint64_t>(low) + scale_to_range(join(words + 2 * v), range));
    }
  }
};

template <class T>
struct Bernoulli {
  static constexpr int kValues = 2;
  const T* p;
  __device__ void operator()(const uint32_t* words, int64_t begin, int count, T* values) const {
    using C = Accumulator<T>;
    const auto own = values_at<kValues>(p + begin, count);
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const bool one =
          uniform_double(words[2 * v], words[2 * v + 1]) < static_cast<double>(static_cast<C>(own.values[v]));
      values[v] = static_cast<T>(one ? C(1) : C(0));
    }
  }
};

template <class T>
struct Dropout {
  static constexpr int kValues = kWordsOfBlock;
  uint64_t threshold;
  Accumulator<T> scale;
  const T* x;
  __device__ void operator()(const uint32_t* words, int64_t begin, int count, T* values) const {
    using C = Accumulator<T>;
    const auto own = values_at<kValues>(x + begin, count);
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      values[v] = static_cast<T>(words[v] >= threshold ? static_cast<C>(own.values[v]) * scale : C(0));
    }
  }
};

/// The sort key of multinomial without replacement.
template <class T>
struct Exponential {
  static constexpr int kValues = 2;
  const T* weights;
  __device__ void operator()(const uint32_t* words, int64_t begin, int count, double* values) const {
    const auto own = values_at<kValues>(weights + begin, count);
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const double weight = static_cast<double>(static_cast<Accumulator<T>>(own.values[v]));
      values[v] = exponential_value(uniform_double(words[2 * v], words[2 * v + 1]), weight);
    }
  }
};

}  // namespace

void uniform(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() { draw(context, state, n, static_cast<T*>(out), Uniform<T>{}); });
}

void normal(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() { draw(context, state, n, static_cast<T*>(out), Normal<T>{}); });
}

void integers(const KernelContext& context, DType dtype, PhiloxState state, int64_t low, uint64_t range, int64_t n,
              void* out) {
  visit_integral_dtype(dtype, [&]<class T>() {
    draw(context, state, n, static_cast<T*>(out), Integers<T>{low, range});
  });
}

void bernoulli(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, const void* p, void* out) {
  visit_floating_dtype(
      dtype, [&]<class T>() { draw(context, state, n, static_cast<T*>(out), Bernoulli<T>{static_cast<const T*>(p)}); });
}

void dropout(const KernelContext& context, DType dtype, PhiloxState state, uint64_t threshold, double scale, int64_t n,
             const void* x, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    draw(context, state, n, static_cast<T*>(out),
         Dropout<T>{threshold, static_cast<Accumulator<T>>(scale), static_cast<const T*>(x)});
  });
}

namespace {

void raise_bad_probability(const DeviceErrorRecord& found, const std::string& suffix) {
  throw ValueError(bad_probability_text(found.number, found.position) + suffix);
}
void raise_bad_weight(const DeviceErrorRecord& found, const std::string& suffix) {
  throw ValueError(bad_weight_text(found.number, found.value, found.position) + suffix);
}
void raise_too_few_weights(const DeviceErrorRecord& found, const std::string& suffix) {
  throw ValueError(too_few_weights_text(found.position, found.value, found.size) + suffix);
}
using Raise = void (*)(const DeviceErrorRecord&, const std::string&);

template <class T>
struct CheckProbability {
  DeviceErrorRecord* record;
  Raise raise;
  const T* p;
  __device__ void operator()(int64_t i) const {
    const double value = static_cast<double>(static_cast<Accumulator<T>>(p[i]));
    if (!(value >= 0 && value <= 1)) report_device_error(record, {.position = i, .number = value, .raise = raise});
  }
};

/// One block per row.
template <class T>
__global__ void check_rows_kernel(DeviceErrorRecord* record, Raise raise_weight, Raise raise_too_few, int64_t rows,
                                  int64_t classes, int64_t needed, const T* weights) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int64_t positive = 0;
    for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
      const double weight = static_cast<double>(static_cast<Accumulator<T>>(weights[row * classes + c]));
      if (!(weight >= 0) || weight == std::numeric_limits<double>::infinity()) {
        report_device_error(record, {.value = row, .position = c, .number = weight, .raise = raise_weight});
      }
      positive += weight > 0;
    }
    positive = block_reduce(positive, int64_t{0}, Plus());
    if (threadIdx.x == 0 && positive < needed) {
      report_device_error(record, {.value = positive, .position = row, .size = needed, .raise = raise_too_few});
    }
  }
}

constexpr int64_t kTile = 1024;  ///< weights that are summed between two barriers

/// One block per row. Partial sums are accumulated sequentially, as on the CPU: another order of additions could select
/// other indices.
template <class T>
__global__ void multinomial_kernel(PhiloxState state, int64_t rows, int64_t classes, int64_t samples, const T* weights,
                                   double* sums, int64_t* out) {
  __shared__ double tile[kTile];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* weights_of_row = weights + row * classes;
    double* sums_of_row = sums + row * classes;
    double sum = 0;  // of the first thread
    for (int64_t begin = 0; begin < classes; begin += kTile) {
      const int64_t count = ::min(kTile, classes - begin);
      for (int64_t c = threadIdx.x; c < count; c += blockDim.x) {
        tile[c] = static_cast<double>(static_cast<Accumulator<T>>(weights_of_row[begin + c]));
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int64_t c = 0; c < count; ++c) tile[c] = sum += tile[c];
      }
      __syncthreads();
      for (int64_t c = threadIdx.x; c < count; c += blockDim.x) sums_of_row[begin + c] = tile[c];
      __syncthreads();
    }
    for (int64_t s = threadIdx.x; s < samples; s += blockDim.x) {
      const int64_t value = row * samples + s;
      const std::array<uint32_t, kWordsOfBlock> words = state.block(static_cast<uint64_t>(value / 2));
      const uint32_t* own = words.data() + value % 2 * 2;
      out[value] = sampled_index(sums_of_row, classes, uniform_double(own[0], own[1]));
    }
  }
}

struct Zeros {
  int64_t* out;
  __device__ void operator()(int64_t i) const { out[i] = 0; }
};

}  // namespace

void check_probabilities(const KernelContext& context, DType dtype, int64_t n, const void* p) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_index(
        context, n,
        CheckProbability<T>{device_error_record(context.device), raise_bad_probability, static_cast<const T*>(p)});
  });
}

void check_weights(const KernelContext& context, DType dtype, int64_t rows, int64_t classes, int64_t needed,
                   const void* weights) {
  if (rows == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, check_rows_kernel<T>, blocks_for(rows, 1), kBlock, 0, device_error_record(context.device),
                  raise_bad_weight, raise_too_few_weights, rows, classes, needed, static_cast<const T*>(weights));
  });
}

void multinomial(const KernelContext& context, DType dtype, PhiloxState state, int64_t rows, int64_t classes,
                 int64_t samples, bool replacement, const void* weights, double* workspace, int64_t* out) {
  if (rows == 0) return;
  if (classes < (replacement ? 1 : samples)) {  // check_weights has reported this; write index 0
    return for_each_index(context, rows * samples, Zeros{out});
  }
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(weights);
    if (replacement) {
      launch_kernel(context, multinomial_kernel<T>, blocks_for(rows, 1), kBlock, 0, state, rows, classes, samples, from,
                    workspace, out);
      return;
    }
    draw(context, state, rows * classes, workspace, Exponential<T>{from});
    select_first<double>(context, rows, classes, samples, false, workspace, nullptr, out);
  });
}

}}}  // namespace tandem::v0::cuda
