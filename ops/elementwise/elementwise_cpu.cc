#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/elementwise/elementwise_map.h>

namespace tandem { inline namespace v0 { namespace cpu {

TANDEM_UNARY_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_BINARY_KERNELS(add, Add)
TANDEM_BINARY_KERNELS(sub, Sub)
TANDEM_BINARY_KERNELS(mul, Mul)
TANDEM_BINARY_KERNELS(div, Div)
TANDEM_COMPARISONS(TANDEM_BINARY_KERNELS)
TANDEM_TERNARY_KERNELS(DivBackward)

namespace {

/// T is an unsigned integer type. Selecting by a mask reads both operands unconditionally, so that the compiler
/// vectorizes the loop (for bytes, not for bools).
template <class T>
void where_of(const StridedLoop<4>& loop, const uint8_t* condition_data, const T* a_data, const T* b_data,
              T* out_data) {
  const int64_t out_step = loop.strides[0].back();
  const int64_t condition_step = loop.strides[1].back();
  const int64_t a_step = loop.strides[2].back();
  const int64_t b_step = loop.strides[3].back();
  const auto choose = [](uint8_t condition, T a, T b) {
    const T mask = static_cast<T>(T{0} - static_cast<T>(condition));
    return static_cast<T>((a & mask) | (b & static_cast<T>(~mask)));
  };
  for_each_row<4>(loop, [&](const int64_t* offsets, int64_t n) {
    T* out = out_data + offsets[0];
    const uint8_t* condition = condition_data + offsets[1];
    const T* a = a_data + offsets[2];
    const T* b = b_data + offsets[3];
    const bool dense = out_step == 1 && condition_step == 1;
    if (dense && a_step == 1 && b_step == 0) {
      const T b0 = *b;
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = choose(condition[i], a[i], b0);
    } else if (dense && a_step == 0 && b_step == 1) {
      const T a0 = *a;
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = choose(condition[i], a0, b[i]);
    } else if (dense && a_step == 0 && b_step == 0) {
      const T a0 = *a, b0 = *b;
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = choose(condition[i], a0, b0);
    } else if (dense && a_step == 1 && b_step == 1) {
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = choose(condition[i], a[i], b[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        out[i * out_step] = choose(condition[i * condition_step], a[i * a_step], b[i * b_step]);
      }
    }
  });
}

}  // namespace

void add_half(const KernelContext&, DType dtype, int64_t n, const float* a, const void* b, float* out) {
  const auto run = [&]<class T>(const T* half) {
    parallel_for(n, kElementGrain, [&](int64_t begin, int64_t end) {
      TANDEM_IVDEP
      for (int64_t i = begin; i < end; ++i) out[i] = a[i] + static_cast<float>(half[i]);
    });
  };
  dtype == kBFloat16 ? run(static_cast<const BFloat16*>(b)) : run(static_cast<const Half*>(b));
}

void where(const KernelContext&, int64_t element_bytes, const StridedLoop<4>& loop, const void* condition, Source a,
           Source b, void* out) {
  const auto run = [&]<class T>(T) {
    where_of(loop, static_cast<const uint8_t*>(condition), static_cast<const T*>(a.data), static_cast<const T*>(b.data),
             static_cast<T*>(out));
  };
  switch (element_bytes) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    default: return run(uint64_t{});
  }
}

}}}  // namespace tandem::v0::cpu
