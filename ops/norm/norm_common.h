// What the operator functions of normalizations share. Private to ops/norm.
#pragma once

#include <cstdint>
#include <memory>

#include <tandem/autograd/node.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The operation after normalization.
enum class Tail : int8_t { kNone, kRelu, kRelu6, kAddRelu };

/// Arguments of batch, group and instance norm.
struct BatchNormArguments {
  Tensor input, residual, running_mean, running_var, weight, bias;
  bool training;
  double momentum, eps;
  std::shared_ptr<BatchNormExchange> exchange = nullptr;
};

/// The dtype of weight and bias.
DType parameter_dtype(const BatchNormArguments& a);
/// Checks all arguments. `values`, unless null, gives the number of values of which statistics are computed, at least
/// 2, from the shape of the input.
Call check_batch_norm(const char* op, const BatchNormArguments& a, Tail tail, int64_t (*values)(const Shape& shape));
/// Checks and runs a batch norm.
Tensor batch_norm_forward(const char* op, BatchNormArguments a, Tail tail);
/// Throws ValueError unless eps is finite and not negative.
void check_eps(const char* op, double eps);

BatchNormShape batch_norm_shape(const Tensor& input);
/// The tensor in the memory order of `shape`.
Tensor in_order(const Tensor& tensor, const BatchNormShape& shape);
/// Uninitialized, with the shape and dtype of `like`, in the memory order of `shape`.
Tensor empty_in_order(const Tensor& like, const BatchNormShape& shape);
/// The workspace of batch norm's kernels.
Tensor batch_norm_workspace(const KernelContext& context, const BatchNormShape& shape);
/// Row `row` of a float64 [rows, C] tensor.
double* row_of(const Tensor& rows, int64_t row);

/// Running statistics that a kernel updates.
class RunningStatistics {
 public:
  /// Sets the running statistics of `update`; undefined ones are not updated. The tensors' storage must not change
  /// until `finish`.
  RunningStatistics(const Tensor& mean, const Tensor& var, double momentum, BatchNormUpdate& update);
  /// Marks the tensors as changed by `op`; to be called after the kernel.
  void finish(const char* op);

 private:
  Tensor running_[2], dense_[2];  ///< as given, and in row-major order
};

/// The memory for the gradient of the weight (i = 1) or the bias (i = 2) of n channels, which becomes that of `slots`;
/// undefined if it is not needed. slots.dtype must be set.
Tensor parameter_slot(autograd::BackwardContext& context, int i, int64_t n, BatchNormParameters& slots);

/// The recorded gradient of (x - mean) * rstd over `dims` for the cotangent g; the mean is 0 unless `centres`. An
/// undefined mean or rstd depends on x, a defined one is constant. Sets `normal` to the recorded (x - mean) * rstd.
Tensor recorded_gradient(const Tensor& x, const Tensor& g, const Shape& dims, double eps, Tensor mean_value,
                         Tensor rstd, Tensor& normal, bool centres = true);

}}}  // namespace tandem::v0::ops
