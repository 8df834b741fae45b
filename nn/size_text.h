// Formats sizes for extra_repr(). Private to nn/.
#pragma once

#include <cstdint>
#include <optional>
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

inline std::string kernel_text(int64_t size) { return str(size); }
inline std::string size_text(int64_t size) { return str(size); }

/// "3x5"; "keep" for a side that keeps the size of the input.
inline std::string kernel_text(const OutputSize2d& size) {
  const auto text = [](std::optional<int64_t> side) { return side ? str(*side) : "keep"; };
  return text(size.height) + "x" + text(size.width);
}

}}}  // namespace tandem::v0::nn
