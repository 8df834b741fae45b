// Casts and autocast.
#pragma once

#include <initializer_list>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// What autocast does to an operation's floating operands.
enum class CastPolicy {
  kLowPrecision,  ///< lower to the autocast dtype: products, convolutions
  kFloat32,       ///< raise half types to float32: softmax, losses, norms
  kWidest,        ///< promote to the widest floating dtype among them: elementwise
};

/// First line of every front: under Autocast, replaces the floating tensors by casts as the policy says (recorded);
/// does nothing otherwise.  Undefined tensors are left alone.
TANDEM_API void cast_for(CastPolicy policy, std::initializer_list<Tensor*> tensors);

/// While it lives, the calling thread's operations cast their operands as their policies say; those of a backward do not, whose
/// gradients have the dtypes that forward chose.  Throws DTypeError unless `dtype` is float16 or bfloat16.
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

/// input converted to `dtype`; `input` itself where it has it.  Floating numbers become integers by truncation toward zero; those
/// beyond the integer dtype's range, the infinities too, become the end of it, and NaN becomes 0.  Integers wrap around in narrower
/// ones.  bool is whether a number is not 0 (NaN is not).  A floating dtype rounds to the nearest, ties to even, and what is beyond
/// its range becomes infinite.  Saves nothing; gradient: converted back.
TANDEM_OP Tensor to(const Tensor& input, DType dtype);

}}  // namespace tandem::v0
