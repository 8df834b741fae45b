#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/elementwise/elementwise_map_cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

TANDEM_UNARY_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_BINARY_KERNELS(add, Add)
TANDEM_BINARY_KERNELS(sub, Sub)
TANDEM_BINARY_KERNELS(mul, Mul)
TANDEM_BINARY_KERNELS(div, Div)
TANDEM_COMPARISONS(TANDEM_BINARY_KERNELS)
TANDEM_TERNARY_KERNELS(DivBackward)

namespace {

template <class T>
struct AddHalf {
  static constexpr int kPack = 4;
  int64_t n;
  const float* a;
  const T* b;
  float* out;

  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack > n) {
      for (int64_t i = begin; i < n; ++i) out[i] = a[i] + static_cast<float>(b[i]);
      return;
    }
    auto sum = load_pack<kPack>(a + begin, kPack);
    const auto half = load_pack<kPack>(b + begin, kPack);
#pragma unroll
    for (int v = 0; v < kPack; ++v) sum.values[v] += static_cast<float>(half.values[v]);
    store_pack(out + begin, sum, kPack);
  }
};

template <class T>
struct Where {
  T* out;
  const bool* condition;
  Elements<T> a, b;
  __device__ void operator()(const int64_t (&at)[4]) const { out[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]]; }
};

}  // namespace

void add_half(const KernelContext& context, DType dtype, int64_t n, const float* a, const void* b, float* out) {
  const auto run = [&]<class T>(const T* half) {
    for_each_index(context, (n + AddHalf<T>::kPack - 1) / AddHalf<T>::kPack, AddHalf<T>{n, a, half, out});
  };
  dtype == kBFloat16 ? run(static_cast<const BFloat16*>(b)) : run(static_cast<const Half*>(b));
}

void where(const KernelContext& context, int64_t element_bytes, const StridedLoop<4>& loop, const void* condition,
           Source a, Source b, void* out) {
  const auto run = [&]<class T>(T) {
    const Where<T> kernel{static_cast<T*>(out), static_cast<const bool*>(condition), Elements<T>(a), Elements<T>(b)};
    for_each_element(context, strided(loop), kernel);
  };
  switch (element_bytes) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    default: return run(uint64_t{});
  }
}

}}}  // namespace tandem::v0::cuda
