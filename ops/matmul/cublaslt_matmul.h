// Matrix products by cuBLASLt. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of the workspace of cublaslt_matmul.
int64_t cublaslt_workspace_bytes(DType dtype);

/// cuda::gemm by cuBLASLt; returns false if cuBLASLt does not support these operands, or without a workspace. In the
/// emulation the CPU's kernels take the place of cuBLASLt.
///
/// The algorithm is the first one of cuBLASLt's heuristic, or the one in the tuning file (base/tuning.h). If
/// TANDEM_TUNING_WRITE names a file, the algorithms of the heuristic are measured at each new problem; the fastest is
/// used and written to the file.
bool cublaslt_matmul(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                     double alpha, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, double beta, GemmEpilogue epilogue, void* workspace, void* out);

}}}  // namespace tandem::v0::cuda
