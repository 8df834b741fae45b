// A matrix product whose operands are split over devices.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// How mat1 [m, k] and mat2 [k, n] are split into parts, part i of both on one device.
enum class SplitDim {
  kRows,     ///< mat1[i] [m_i, k]: rows;    mat2[i] [k, n]: a copy.  The result's rows are put together
  kColumns,  ///< mat1[i] [m, k]: a copy;    mat2[i] [k, n_i]: columns.  The result's columns are put together
  kInner,  ///< mat1[i] [m, k_i]: columns; mat2[i] [k_i, n]: rows.  The partial products are summed, in the order of the list
};

/// out = beta * input + alpha * (mat1 @ mat2) on `device`, with the parts of mat1 and mat2 where they are.
///
/// Every device multiplies its parts at the same time; what moves to `device` are the products, never an operand: part i of
/// mat1 and of mat2 must be on one device, and input, which broadcasts to [m, n], on `device`, else DeviceError.
/// comm::scatter splits a matrix, comm::broadcast copies it.  Memory: a product on each device, and the result.  With beta = 0
/// input is not read.  Floating, equal dtypes.
///
/// Equal to addmm of the whole within rounding; the same bits for the same split.  Memory is checked before anything is computed.
/// Backward saves the parts: d out goes to the devices, whose products again run at the same time.  Throws ValueError,
/// StateError, ShapeError, DTypeError, DeviceError, OutOfMemory.
TANDEM_OP Tensor addmm_split(const Tensor& input, const std::vector<Tensor>& mat1, const std::vector<Tensor>& mat2,
                             SplitDim split, Device device, Scalar beta = 1, Scalar alpha = 1);

}}  // namespace tandem::v0
