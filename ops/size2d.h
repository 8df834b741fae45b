// Size2d: a height and a width.
#pragma once

#include <cstdint>
#include <ostream>

namespace tandem { inline namespace v0 {

/// Height and width of a window, a stride or a padding: `3` sets both to 3, `{3, 5}` is height 3 and width 5.
struct Size2d {
  int64_t height;  ///< first
  int64_t width;   ///< second

  /// Equal height and width.
  constexpr Size2d(int64_t both) : height(both), width(both) {}
  constexpr Size2d(int64_t height_value, int64_t width_value) : height(height_value), width(width_value) {}

  friend constexpr bool operator==(const Size2d&, const Size2d&) = default;
  /// "[3, 5]".
  friend std::ostream& operator<<(std::ostream& out, const Size2d& size) {
    return out << '[' << size.height << ", " << size.width << ']';
  }
};

}}  // namespace tandem::v0
