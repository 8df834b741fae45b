// Matrix products whose operands are split over devices.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The split of mat1 [m, k] and mat2 [k, n] into parts; part i of both is on one device.
enum class SplitDim {
  kRows,     ///< mat1[i] [m_i, k]: rows;    mat2[i] [k, n]: a copy. The rows of the result are concatenated
  kColumns,  ///< mat1[i] [m, k]: a copy;    mat2[i] [k, n_i]: columns. The columns of the result are concatenated
  kInner,    ///< mat1[i] [m, k_i]: columns; mat2[i] [k_i, n]: rows. The partial products are summed in list order
};

/// out = beta * input + alpha * (mat1 @ mat2) on `device`; the parts of mat1 and mat2 stay on their devices.
///
/// All devices multiply their parts concurrently. Only the products are copied to `device`, never an operand. Part i of
/// mat1 and of mat2 must be on one device, and input, which broadcasts to [m, n], on `device`, else DeviceError.
/// comm::scatter splits a matrix, comm::broadcast copies it. Memory: one product per device, and the result. If beta is
/// 0, input is not read. Floating, equal dtypes.
///
/// Equal to addmm of the unsplit operands within rounding; the same split gives the same bits. Memory is checked before
/// anything is computed. Backward saves the parts: d out is copied to the devices, which again multiply concurrently.
/// Throws ValueError, StateError, ShapeError, DTypeError, DeviceError, OutOfMemory.
TANDEM_OP Tensor addmm_split(const Tensor& input, const std::vector<Tensor>& mat1, const std::vector<Tensor>& mat2,
                             SplitDim split, Device device, Scalar beta = 1, Scalar alpha = 1);

}}  // namespace tandem::v0
