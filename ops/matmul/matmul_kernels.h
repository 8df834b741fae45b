// Kernels of matrix products.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// A matrix operand as kernels take it: element (i, j) is data[transposed ? j * leading + i : i * leading + j].
struct MatrixOperand {
  const void* data = nullptr;
  int64_t leading = 1;  ///< elements from one row (transposed: column) to the next, at least the number in one
  bool transposed = false;
};

/// What is added to a product, or done with it, while a tile of it is in cache.
struct ProductEpilogue {
  const void* bias = nullptr;  ///< [n], added to each row; null: none
  bool relu = false;           ///< replace negative results by 0
};

/// How a float32 product is computed; see docs/decisions/001-float32-products.md.
enum class ProductAlgorithm : int8_t {
  kDirect,       ///< no packing: products too small to pay for it
  kAvx2,         ///< tiles of product_tile.h: rows of a are broadcast, b is packed
  kAvx2Swapped,  ///< the same for out^T = b^T @ a^T: b, whose k runs along memory, is read where it is
  kAvx512,
  kAvx512Swapped,
};

const char* to_string(ProductAlgorithm algorithm);

/// The algorithm for an m x n x k product: a rule of the shape, of which operands are transposed, and of the machine's
/// instructions.
ProductAlgorithm product_algorithm(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed);

/// Whether this machine can run it.
bool is_available(ProductAlgorithm algorithm);

namespace cpu {

/// Bytes of scratch that `product` needs.
int64_t product_workspace_bytes(DType dtype, ProductAlgorithm algorithm, int64_t m, int64_t n, int64_t k,
                                const MatrixOperand& a, const MatrixOperand& b);

/// out = epilogue(alpha * a @ b + beta * out): a is m x k, b k x n, out row-major m x n.  With beta = 0 out is not read.
/// dtype: any but bool and the half types; the epilogue for floating ones only.  float32 uses `algorithm`; k may be 0.
void product(const CpuContext& context, DType dtype, ProductAlgorithm algorithm, int64_t m, int64_t n, int64_t k,
             double alpha, const MatrixOperand& a, const MatrixOperand& b, double beta, ProductEpilogue epilogue,
             void* workspace, void* out);

/// The products of `batches` pairs of matrices that lie the given numbers of elements after a.data and b.data; out is
/// row-major batches x m x n.  dtypes and algorithm as for `product`; the workspace holds `batches` times its bytes.
void batched_product(const CpuContext& context, DType dtype, ProductAlgorithm algorithm, int64_t batches, int64_t m,
                     int64_t n, int64_t k, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, void* workspace, void* out);

}  // namespace cpu

namespace cuda {

/// Bytes of scratch that the library's product needs.
int64_t product_workspace_bytes(DType dtype);

/// out = epilogue(alpha * a @ b + beta * out) for `batches` pairs of matrices, which lie the given numbers of elements after
/// a.data and b.data (null: 0); out is row-major batches x m x n.  dtype: any but bool; half types are summed in float32.  Without
/// workspace it is the own kernel's.
void product(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
             const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
             double beta, ProductEpilogue epilogue, void* workspace, void* out);

}  // namespace cuda

TANDEM_KERNELS(
    /// out[j] = beta * out[j] + sum over i of grad[i, j]; grad row-major rows x cols.  Floating; sums of half types in float32.
    void sum_rows(const KernelContext& context, DType dtype, int64_t rows, int64_t cols, const void* grad, double beta,
                  void* out);

    /// masked[i, j] = output[i, j] > 0 ? grad[i, j] : 0, and bias_grad[j] = beta * bias_grad[j] + sum over i of masked[i, j]
    /// unless bias_grad is null.  All row-major rows x cols, floating.
    void mask_and_sum_rows(const KernelContext& context, DType dtype, int64_t rows, int64_t cols, const void* grad,
                           const void* output, double beta, void* masked, void* bias_grad);)

}}  // namespace tandem::v0
