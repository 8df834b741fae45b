// Products by cuBLASLt.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// cuda::product by the library; false where it has none for these operands, or no workspace.  In the emulation the CPU's product is
/// the library.
///
/// The algorithm is the library's first advice, or what the tuning file (base/tuning.h) says for the problem.  Where TANDEM_TUNING_WRITE names
/// a file, the fastest of the library's advice is measured at each new problem, taken, and written there.
bool library_product(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                     double alpha, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, double beta, ProductEpilogue epilogue, void* workspace, void* out);

}}}  // namespace tandem::v0::cuda
