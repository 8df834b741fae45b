// GEMM micro-kernels for AVX-512: tiles of 6 x 64, whose sums use 24 of 32 registers.
#include <immintrin.h>

#include <tandem/ops/matmul/gemm_avx512_inl.h>

namespace tandem { inline namespace v0 { namespace {

struct V : Avx512 {
  using Element = float;
  static Vector dot(Vector a, Vector b, Vector sum) { return fma(a, b, sum); }
};

}}}  // namespace tandem::v0

#include <tandem/ops/matmul/gemm_tile_inl.h>

namespace tandem { inline namespace v0 {

const GemmKernels kGemmAvx512 = {{"avx512", V::kRows, kColumns, solve, pack_right, pack_left}, store_transposed};

}}  // namespace tandem::v0
