// Formats sizes for extra_repr(). Private to nn/.
#pragma once

#include <string>

#include <tandem/base/error.h>
#include <tandem/ops/size2d.h>

namespace tandem { inline namespace v0 { namespace nn {

/// "3x3", "3x5".
inline std::string kernel_text(const Size2d& size) { return str(size.height, "x", size.width); }

/// "2" if height and width are equal, else "2x1".
inline std::string size_text(const Size2d& size) {
  return size.height == size.width ? str(size.height) : kernel_text(size);
}

}}}  // namespace tandem::v0::nn
