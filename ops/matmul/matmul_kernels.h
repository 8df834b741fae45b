// Kernels of matrix products. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// A matrix operand of kernels: element (i, j) is data[transposed ? j * leading + i : i * leading + j].
struct MatrixOperand {
  const void* data = nullptr;
  int64_t leading = 1;  ///< elements from one row (transposed: column) to the next, at least its length
  bool transposed = false;
};

/// Operations on a product while a tile of it is in the cache.
struct GemmEpilogue {
  const void* bias = nullptr;   ///< [n], added to each row; may be null; on CPUs float32 for half types
  bool relu = false;            ///< replaces negative results by 0
  bool float32_result = false;  ///< out is float32, not rounded; only half types, on GPUs without the other fields
  bool gelu = false;            ///< the tanh form, after the bias; only one product of half types on GPUs, beta = 0
  void* before_gelu = nullptr;  ///< with gelu: the results before it, laid out as out; null: not stored
};

/// Activations whose gradients activation_and_sum_rows computes.
enum class FusedActivation : int8_t {
  kRelu,      ///< saved: the results
  kGeluTanh,  ///< saved: the arguments; only half types on GPUs
};

/// Algorithms of float32 and bfloat16 products on CPUs; see docs/decisions/001-float32-products.md.
enum class GemmAlgorithm : int8_t {
  kDirect,       ///< no packing, for small products
  kVector,       ///< one row a and a transposed b: dot products with the rows of b, which are read once
  kAvx2,         ///< micro-kernels of gemm_tile.h: a is broadcast, b is packed
  kAvx2Swapped,  ///< computes out^T = b^T @ a^T: a is packed, b is read in place
  kAvx512,
  kAvx512Swapped,
  kAvx512Bf16,  ///< as kAvx512, for bfloat16: dot products of pairs, summed in float32
  kAvx512Bf16Swapped,
};

const char* to_string(GemmAlgorithm algorithm);

/// The algorithm for an m x n x k product; depends only on the shape, the transpositions and the instruction set.
GemmAlgorithm gemm_algorithm(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed,
                             DType dtype = kFloat32);

/// Whether this CPU supports `algorithm`.
bool is_available(GemmAlgorithm algorithm);

/// Whether gemm on this CPU multiplies matrices of a half type; otherwise their float32 copies are multiplied.
/// `rounds`: the result has that type too.
bool has_half_gemm(DType dtype, int64_t m, int64_t n, int64_t k, bool rounds);

namespace cpu {

/// Bytes of the workspace of the overload of gemm below.
int64_t gemm_workspace_bytes(DType dtype, GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k,
                             const MatrixOperand& a, const MatrixOperand& b);

/// gemm of one pair of matrices by a given algorithm, which only float32 and bfloat16 use.
void gemm(const CpuContext& context, DType dtype, GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k,
          double alpha, const MatrixOperand& a, const MatrixOperand& b, double beta, GemmEpilogue epilogue,
          void* workspace, void* out);

}  // namespace cpu

TANDEM_KERNELS(
    /// Bytes of the workspace of gemm.
    int64_t gemm_workspace_bytes(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n,
                                 int64_t k, const MatrixOperand& a, const MatrixOperand& b);

    /// out = epilogue(alpha * a @ b + beta * out) for `batches` pairs of matrices: a is m x k, b is k x n; k may be 0.
    /// Matrix i begins a_offsets[i] elements after a.data and b_offsets[i] elements after b.data; null offsets are
    /// zeros. out is row-major batches x m x n, and is not read if beta is 0. dtype: any except bool; on CPUs a half
    /// type only if has_half_gemm. Half types are summed in float32. The epilogue is for floating dtypes only.
    void gemm(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
              const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
              double beta, GemmEpilogue epilogue, void* workspace, void* out);

    /// Bytes of the workspace of the two kernels below.
    int64_t sum_rows_workspace_bytes(const KernelContext& context, DType dtype, int64_t rows, int64_t cols);

    /// out[j] = beta * out[j] + sum over i of grad[i, j]; grad is row-major rows x cols. Floating; half types are
    /// summed in float32. The dtype of out is `result`: `dtype` or, for half types, float32.
    void sum_rows(const KernelContext& context, DType dtype, DType result, int64_t rows, int64_t cols, const void* grad,
                  double beta, void* workspace, void* out);

    /// grad_in = the gradient of the activation's argument for the gradient `grad` of its result, and bias_grad[j] =
    /// beta * bias_grad[j] + sum over i of grad_in[i, j] unless bias_grad is null. `saved` has the results or arguments
    /// of the activation. All row-major rows x cols, floating. `result` is the dtype of bias_grad, as for sum_rows.
    void activation_and_sum_rows(const KernelContext& context, FusedActivation activation, DType dtype, DType result,
                                 int64_t rows, int64_t cols, const void* grad, const void* saved, double beta,
                                 void* grad_in, void* workspace, void* bias_grad);)

}}  // namespace tandem::v0
