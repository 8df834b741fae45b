// Casts and autocast.
#pragma once

#include <initializer_list>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// How autocast converts the floating operands of an operation.
enum class CastPolicy {
  kLowPrecision,  ///< to the autocast dtype: matrix products, convolutions
  kFloat32,       ///< half types to float32: softmax, losses, layer norm
  kWidest,        ///< to the widest floating dtype of the operands: elementwise
};

/// Must be the first line of every operator function: under Autocast, replaces the floating tensors by recorded casts
/// according to the policy; otherwise does nothing. Undefined tensors are ignored.
TANDEM_API void cast_for(CastPolicy policy, std::initializer_list<Tensor*> tensors);

/// The dtype to which cast_for() would cast a tensor of `dtype`; not for kWidest, which depends on several tensors.
TANDEM_API DType dtype_for(CastPolicy policy, DType dtype);

/// While in scope, operations of the calling thread cast their operands according to their policies (torch.autocast).
/// Backward does not cast, because gradients have the dtypes of forward. Throws DTypeError unless `dtype` is float16 or
/// bfloat16.
///
/// On GPUs, float32 parameters keep their casts, 2 bytes per element, until they are changed. A kernel of your own that
/// changes a parameter must count the change: autograd::end_in_place.
class TANDEM_API Autocast {
 public:
  /// Starts autocast to float16 or bfloat16.
  explicit Autocast(DType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  int8_t previous_;
};

/// input converted to `dtype`; `input` itself if it has that dtype. Floating to integer truncates toward zero and
/// saturates, infinities included; NaN becomes 0. Integer to integer wraps around. bool: whether the value is not 0
/// (false for NaN). Floating to floating rounds to nearest, ties to even; values out of range become infinite. Saves
/// nothing; the gradient is converted back.
TANDEM_OP Tensor to(const Tensor& input, DType dtype);

}}  // namespace tandem::v0
