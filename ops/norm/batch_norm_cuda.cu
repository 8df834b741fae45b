// GPU kernels of batch normalization.
//
// In float64 the squares of float32 numbers are exact, and a mean of 10^4 deviations loses only 8 of 16 digits; the
// same is true of half types in float32. So these types are read once for both moments; float64 is read a second time,
// for the deviations from the mean.
#include <type_traits>

#include <tandem/ops/norm/channels_cuda.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::BatchNormChannel;
using functions::channel_of;
using functions::ChannelMap;

/// The type in which a thread sums its positions of a piece.
template <class T>
using RunOf = std::conditional_t<kIsHalf<T>, float, double>;

/// Sums of x - shift and of its square; a null shift is 0.
template <class T>
struct AddMoments {
  using Run = RunOf<T>;
  using Numbers = Run;
  static constexpr int kBlocks = 3, kAhead = 4;
  const T* in;
  const double* shift;

  __device__ Numbers numbers(int64_t c) const { return shift == nullptr ? Run{0} : static_cast<Run>(shift[c]); }
  template <int kPack>
  __device__ Pack<T, kPack> load(int64_t at) const {
    return load_pack<kPack>(in + at, kPack);
  }
  template <int kPack>
  __device__ void operator()(const Numbers (&from)[kPack], int64_t, const Pack<T, kPack>& x, Run (&a)[kPack],
                             Run (&b)[kPack]) const {
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const Run value = static_cast<Run>(x.values[v]) - from[v];
      a[v] += value;
      b[v] += value * value;
    }
  }
};

struct StoreMoments {
  double count;
  const double* shift;  // may be the same memory as mean
  double* mean;
  double* squares;
  bool updates;
  BatchNormUpdate update;

  __device__ void operator()(int64_t c, Sums sums) const {
    const double shifted_mean = sums.a / count;
    const double deviations = sums.b - sums.a * shifted_mean;
    mean[c] = (shift == nullptr ? 0 : shift[c]) + shifted_mean;
    squares[c] = deviations < 0 ? 0 : deviations;  // a rounding error; NaN is kept
    if (updates) functions::update_channel(update, c, mean[c], squares[c]);
  }
};

/// The mask of the results of relu: bit v is 0 if value v is 0. NaN is not 0.
template <class T, int kPack>
__device__ unsigned positive_bits(const Pack<T, kPack>& results) {
  unsigned bits = 0;
#pragma unroll
  for (int v = 0; v < kPack; ++v) {
    if (!(static_cast<Accumulator<T>>(results.values[v]) <= Accumulator<T>{0})) bits |= 1u << v;
  }
  return bits;
}

/// The byte of a mask for the pack at offset `at`.
template <int kPack, class Byte>
__device__ Byte& byte_of_pack(Byte* positive, int64_t at) {
  return positive[static_cast<uint64_t>(at) / kPack];
}

template <class T, bool kResidual>
struct Normalise {
  using C = Accumulator<T>;
  using Numbers = ChannelMap<C>;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> x, added;
  };
  static constexpr int kBlocks = 3, kAhead = kResidual ? 2 : 4;
  BatchNormChannels channels;
  bool relu;
  const T* in;
  const T* residual;
  T* out;
  uint8_t* positive;  // null: not stored; unless null, packs have 16 bytes

  __device__ Numbers numbers(int64_t c) const { return channel_of<T>(channels, c).template normalising<C>(); }
  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    Inputs<kPack> inputs = {load_pack<kPack>(in + at, kPack), {}};
    if constexpr (kResidual) inputs.added = load_pack<kPack>(residual + at, kPack);
    return inputs;
  }
  template <int kPack>
  __device__ void operator()(const Numbers (&result)[kPack], int64_t at, const Inputs<kPack>& inputs) const {
    const C ceiling = static_cast<C>(channels.ceiling);
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      C value = result[v](static_cast<C>(inputs.x.values[v]));
      if constexpr (kResidual) value += static_cast<C>(inputs.added.values[v]);
      if (relu && value < C{0}) value = C{0};
      if (relu && value > ceiling) value = ceiling;
      results.values[v] = static_cast<T>(value);
    }
    store_pack(out + at, results, kPack);
    if constexpr (kResidual && kPack > 1) {
      if (positive != nullptr) byte_of_pack<kPack>(positive, at) = static_cast<uint8_t>(positive_bits(results));
    }
  }
};

/// The gradient of a normalized input: `grad`, or with relu 0 where it set the result to 0 or to the ceiling.
template <class T>
struct Masked {
  using C = Accumulator<T>;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> x, grad;
  };
  using Map = ChannelMap<C>;  // of the input to the result without relu
  static constexpr int kAhead = 2;
  bool relu;
  C ceiling;
  const T* in;
  const T* grad;

  __device__ static Map map_of(const BatchNormChannel& channel) { return channel.normalising<C>(); }
  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    return {load_pack<kPack>(in + at, kPack), load_pack<kPack>(grad + at, kPack)};
  }
  /// The gradients of a pack.
  template <int kPack, class Numbers>
  __device__ Pack<T, kPack> gradients(const Numbers (&of)[kPack], int64_t, const Inputs<kPack>& inputs) const {
    Pack<T, kPack> results = inputs.grad;
    if (!relu) return results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const C result = of[v].map(static_cast<C>(inputs.x.values[v]));
      if (result <= C{0} || (result >= ceiling && ceiling < C{INFINITY})) results.values[v] = static_cast<T>(C{0});
    }
    return results;
  }
};

/// The gradient of a normalized input plus a residual: `grad` plus `more`, or 0 where relu set the result to 0. It is
/// stored to `counted`.
template <class T>
struct MaskedByResult {
  using C = Accumulator<T>;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> x, grad, more;
    unsigned positive;
  };
  struct Map {};
  static constexpr int kAhead = 2;
  const T* in;
  const T* out;
  const uint8_t* positive;  // the mask, read by packs of 16 bytes in place of `out`; null: there is none
  const T* grad;
  const T* more;  // null: 0
  T* counted;

  __device__ static Map map_of(const BatchNormChannel&) { return {}; }
  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    Inputs<kPack> inputs = {load_pack<kPack>(in + at, kPack), load_pack<kPack>(grad + at, kPack), {}, 0};
    if (more != nullptr) inputs.more = load_pack<kPack>(more + at, kPack);
    inputs.positive = kPack > 1 && positive != nullptr ? byte_of_pack<kPack>(positive, at)
                                                       : positive_bits(load_pack<kPack>(out + at, kPack));
    return inputs;
  }
  template <int kPack, class Numbers>
  __device__ Pack<T, kPack> gradients(const Numbers (&)[kPack], int64_t at, const Inputs<kPack>& inputs) const {
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      C gradient = static_cast<C>(inputs.grad.values[v]);
      if (more != nullptr) gradient += static_cast<C>(inputs.more.values[v]);
      results.values[v] = static_cast<T>((inputs.positive >> v & 1) == 0 ? C{0} : gradient);
    }
    store_pack(counted + at, results, kPack);
    return results;
  }
};

/// Sums of the gradients g and of g (x - mean); Gradients is one of the two above.
template <class T, class Gradients>
struct AddGradients {
  using C = Accumulator<T>;
  using Run = RunOf<T>;
  static constexpr int kBlocks = 2, kAhead = Gradients::kAhead;
  BatchNormChannels channels;
  Gradients from;

  struct alignas(16) Numbers {
    typename Gradients::Map map;
    Run mean;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    return {Gradients::map_of(channel), static_cast<Run>(channel.mean)};
  }
  template <int kPack>
  __device__ auto load(int64_t at) const {
    return from.template load<kPack>(at);
  }
  template <int kPack, class Inputs>
  __device__ void operator()(const Numbers (&of)[kPack], int64_t at, const Inputs& inputs, Run (&a)[kPack],
                             Run (&b)[kPack]) const {
    const Pack<T, kPack> gradients = from.gradients(of, at, inputs);
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const Run g = static_cast<Run>(gradients.values[v]);
      a[v] += g;
      b[v] += g * (static_cast<Run>(inputs.x.values[v]) - of[v].mean);
    }
  }
};

struct StoreSums {
  int64_t channels;
  const double* rstd;
  double* sums;
  BatchNormParameters parameters;
  __device__ void operator()(int64_t c, Sums of) const {
    sums[c] = of.a;
    sums[channels + c] = of.b;
    functions::store_parameter_gradients(parameters, c, of.a, of.b * rstd[c]);
  }
};

template <class T>
struct InputGradient {
  using C = Accumulator<T>;
  static constexpr int kBlocks = 2, kAhead = 2;
  BatchNormChannels channels;
  Masked<T> from;
  const double* sums;
  int64_t num_channels;
  double count;
  T* grad_in;

  struct alignas(16) Numbers {
    ChannelMap<C> map;
    ChannelMap<C> subtracted;
    C weight;
    C factor;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    Numbers of = {channel.normalising<C>(),
                  {},
                  static_cast<C>(channel.gradient_weight()),
                  static_cast<C>(channel.gradient_factor())};
    if (count != 0) of.subtracted = channel.subtracted_from_gradient<C>(sums[c], sums[num_channels + c], count);
    return of;
  }
  template <int kPack>
  __device__ auto load(int64_t at) const {
    return from.template load<kPack>(at);
  }
  template <int kPack, class Inputs>
  __device__ void operator()(const Numbers (&of)[kPack], int64_t at, const Inputs& inputs) const {
    const Pack<T, kPack> gradients = from.gradients(of, at, inputs);
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const C g = static_cast<C>(gradients.values[v]), x = static_cast<C>(inputs.x.values[v]);
      const C rest = count == 0 ? g : g * of[v].weight - of[v].subtracted(x);
      results.values[v] = static_cast<T>(rest * of[v].factor);
    }
    store_pack(grad_in + at, results, kPack);
  }
};

struct Join {
  int64_t ranks;
  int64_t channels;
  double* gathered;
  double* mean;
  double* squares;
  __device__ void operator()(int64_t c) const {
    functions::join_moments(ranks, channels, gathered, c, mean + c, squares + c);
  }
};

struct Update {
  const double* mean;
  const double* squares;
  BatchNormUpdate update;
  __device__ void operator()(int64_t c) const { functions::update_channel(update, c, mean[c], squares[c]); }
};

struct StoreParameters {
  const double* sum;
  const double* sum_along;
  BatchNormParameters to;
  __device__ void operator()(int64_t c) const { functions::store_parameter_gradients(to, c, sum[c], sum_along[c]); }
};

}  // namespace

int64_t batch_norm_workspace_bytes(const KernelContext&, const BatchNormShape& shape) {
  return 2 * max_pieces(shape) * shape.channels * static_cast<int64_t>(sizeof(double));
}

void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares, const BatchNormUpdate* update) {
  const double count = static_cast<double>(shape.per_channel());
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(in);
    visit_pack<T>(row_size(shape), {x}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      constexpr bool kTwice = sizeof(T) == sizeof(double);
      StoreMoments store = {count, nullptr, mean, squares, false, {}};
      if constexpr (kTwice) {
        sum<kPack>(context, shape, workspace, AddMoments<T>{x, nullptr}, store);
        store.shift = mean;
      }
      if (update != nullptr) {
        store.updates = true;
        store.update = *update;
      }
      sum<kPack>(context, shape, workspace, AddMoments<T>{x, store.shift}, store);
    });
  });
}

void batch_norm_join(const KernelContext& context, int64_t ranks, int64_t channels, double* gathered, double* mean,
                     double* squares) {
  for_each_index(context, channels, Join{ranks, channels, gathered, mean, squares});
}

void batch_norm_update(const KernelContext& context, int64_t n, const double* mean, const double* squares,
                       const BatchNormUpdate& update) {
  for_each_index(context, n, Update{mean, squares, update});
}

void batch_norm_parameters(const KernelContext& context, int64_t n, const double* sum, const double* sum_along,
                           const BatchNormParameters& parameters) {
  for_each_index(context, n, StoreParameters{sum, sum_along, parameters});
}

int64_t batch_norm_mask_bytes(const KernelContext&, DType dtype, const BatchNormShape& shape, const void* in,
                              const void* residual, const void* out) {
  const int64_t size = size_of(dtype);
  return are_aligned_for_packs(row_size(shape) * size, {in, residual, out})
             ? shape.per_channel() * shape.channels * size / 16
             : 0;
}

void batch_norm(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                const BatchNormChannels& channels, bool relu, const void* in, const void* residual, void*, void* out,
                void* positive) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T *x = static_cast<const T*>(in), *added = static_cast<const T*>(residual);
    T* y = static_cast<T*>(out);
    visit_pack<T>(row_size(shape), {x, added, y}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      if (added == nullptr) {
        map<kPack>(context, shape, Normalise<T, false>{channels, relu, x, added, y, nullptr});
      } else {
        uint8_t* bits = static_cast<uint8_t*>(positive);
        map<kPack>(context, shape, Normalise<T, true>{channels, relu, x, added, y, bits});
      }
    });
  });
}

void batch_norm_backward_sums(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* positive, const void* grad, const void* more, void* workspace, double* sums,
                              void* counted, const BatchNormParameters& parameters) {
  const StoreSums store = {shape.channels, channels.rstd, sums, parameters};
  visit_floating_dtype(dtype, [&]<class T>() {
    const T *x = static_cast<const T*>(in), *g = static_cast<const T*>(grad);
    visit_pack<T>(row_size(shape), {in, out, grad, more, counted}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      if (mask == ReluMask::kOutput) {
        const MaskedByResult<T> from = {x, static_cast<const T*>(out),  static_cast<const uint8_t*>(positive),
                                        g, static_cast<const T*>(more), static_cast<T*>(counted)};
        sum<kPack>(context, shape, workspace, AddGradients<T, MaskedByResult<T>>{channels, from}, store);
      } else {
        const Masked<T> from = {mask == ReluMask::kInput, static_cast<Accumulator<T>>(channels.ceiling), x, g};
        sum<kPack>(context, shape, workspace, AddGradients<T, Masked<T>>{channels, from}, store);
      }
    });
  });
}

void batch_norm_backward(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, bool relu, const void* in, const void* grad,
                         const double* sums, double count, void*, void* grad_in) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Masked<T> from = {relu, static_cast<Accumulator<T>>(channels.ceiling), static_cast<const T*>(in),
                            static_cast<const T*>(grad)};
    visit_pack<T>(row_size(shape), {in, grad, grad_in}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      map<kPack>(context, shape,
                 InputGradient<T>{channels, from, sums, shape.channels, count, static_cast<T*>(grad_in)});
    });
  });
}

}}}  // namespace tandem::v0::cuda
