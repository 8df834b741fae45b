// Matrix products by cuBLASLt. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of the workspace of cublaslt_matmul.
int64_t cublaslt_workspace_bytes(DType dtype);

/// out = alpha a b + beta out + bias by cuBLASLt, as cuda::gemm, but without relu. Returns false if tandem's own kernel
/// must compute the product: without a workspace, or if cuBLASLt fails before the product starts, which is logged once
/// per problem as a warning. Throws BackendError if the product fails later.
///
/// The algorithm is the first of at most eight proposals of cuBLASLt that runs, or the algorithm in the tuning file
/// (base/tuning.h). If TANDEM_TUNING_WRITE names a file, the proposals are measured at each new problem; the fastest is
/// used and written to the file.
bool cublaslt_matmul(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                     double alpha, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, double beta, const GemmEpilogue& epilogue, void* workspace, void* out);

}}}  // namespace tandem::v0::cuda
