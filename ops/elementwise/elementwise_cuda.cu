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
struct Where {
  T* out;
  const bool* condition;
  Elements<T> a, b;
  __device__ void operator()(const int64_t (&at)[4]) const { out[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]]; }
};

}  // namespace

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
