// Padding layers.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/pad.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Numbers of elements that a layer adds: `2` on all sides, {left, right}, or {left, right, top, bottom}. A negative
/// number removes elements.
struct Padding {
  Shape sides;  ///< one number, or one per side

  Padding(int64_t all) : sides{all} {}                           ///< the same on all sides
  Padding(std::initializer_list<int64_t> each) : sides(each) {}  ///< of each side
};

/// Base of the padding layers: pad of the last one or two dimensions.
class TANDEM_API PaddingLayer : public FunctionLayer {
 protected:
  /// Throws ValueError unless `padding` has one number, or two for each of the last `dims` dimensions.
  PaddingLayer(int64_t dims, const Padding& padding, PadMode mode, double value = 0);

 private:
  PaddingLayer(const Shape& sides, PadMode mode, double value);
};

/// Adds `value` on both sides of x [N, C, L] or [C, L].
class TANDEM_API ConstantPad1d : public PaddingLayer {
 public:
  /// Number and value of the added elements.
  ConstantPad1d(const Padding& padding, double value) : PaddingLayer(1, padding, PadMode::kConstant, value) {}
};

/// Adds `value` around x [N, C, H, W] or [C, H, W].
class TANDEM_API ConstantPad2d : public PaddingLayer {
 public:
  /// Number and value of the added elements.
  ConstantPad2d(const Padding& padding, double value) : PaddingLayer(2, padding, PadMode::kConstant, value) {}
};

/// Adds zeros on both sides of x [N, C, L] or [C, L].
class TANDEM_API ZeroPad1d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ZeroPad1d(const Padding& padding) : PaddingLayer(1, padding, PadMode::kConstant) {}
};

/// Adds zeros around x [N, C, H, W] or [C, H, W].
class TANDEM_API ZeroPad2d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ZeroPad2d(const Padding& padding) : PaddingLayer(2, padding, PadMode::kConstant) {}
};

/// Mirrors x [N, C, L] or [C, L] at its end elements, which are not repeated.
class TANDEM_API ReflectionPad1d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ReflectionPad1d(const Padding& padding) : PaddingLayer(1, padding, PadMode::kReflect) {}
};

/// Mirrors x [N, C, H, W] or [C, H, W] at its edge elements, which are not repeated.
class TANDEM_API ReflectionPad2d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ReflectionPad2d(const Padding& padding) : PaddingLayer(2, padding, PadMode::kReflect) {}
};

/// Repeats the first and the last element of x [N, C, L] or [C, L].
class TANDEM_API ReplicationPad1d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ReplicationPad1d(const Padding& padding) : PaddingLayer(1, padding, PadMode::kReplicate) {}
};

/// Repeats the elements at the edges of x [N, C, H, W] or [C, H, W].
class TANDEM_API ReplicationPad2d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit ReplicationPad2d(const Padding& padding) : PaddingLayer(2, padding, PadMode::kReplicate) {}
};

/// Continues x [N, C, L] or [C, L] with the elements of its other end.
class TANDEM_API CircularPad1d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit CircularPad1d(const Padding& padding) : PaddingLayer(1, padding, PadMode::kCircular) {}
};

/// Continues x [N, C, H, W] or [C, H, W] with the elements of the opposite edge.
class TANDEM_API CircularPad2d : public PaddingLayer {
 public:
  /// Number of added elements.
  explicit CircularPad2d(const Padding& padding) : PaddingLayer(2, padding, PadMode::kCircular) {}
};

}}}  // namespace tandem::v0::nn
