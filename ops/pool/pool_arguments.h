// Checks of the arguments of pooling. Private to ops/pool/.
#pragma once

#include <tandem/ops/common/images.h>
#include <tandem/ops/size2d.h>

namespace tandem { inline namespace v0 { namespace ops {

/// Throws DTypeError and ShapeError as ops/pool.h says.
ImageForm check_images(const char* op, const Tensor& input, bool is_signal);

/// Throws ValueError unless both sides are in [least, 2^31 - 1]. Signals have a width only.
void check_sides(const char* op, const char* name, Size2d sides, int64_t least, bool is_signal);

}}}  // namespace tandem::v0::ops
