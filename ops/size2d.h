// Size2d: a height and a width; OutputSize2d: the height and width of a result.
#pragma once

#include <cstdint>
#include <optional>
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

/// Height and width of a result; std::nullopt keeps the input's size: `7`, `{7, 5}`, `{std::nullopt, 5}`.
struct OutputSize2d {
  std::optional<int64_t> height;  ///< first
  std::optional<int64_t> width;   ///< second

  /// Equal height and width.
  constexpr OutputSize2d(int64_t both) : height(both), width(both) {}
  constexpr OutputSize2d(Size2d size) : height(size.height), width(size.width) {}
  constexpr OutputSize2d(std::optional<int64_t> height_value, std::optional<int64_t> width_value)
      : height(height_value), width(width_value) {}
};

}}  // namespace tandem::v0
