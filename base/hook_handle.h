// The handle of a registered hook.
#pragma once

#include <functional>
#include <utility>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Removes a hook when destroyed. Movable; an empty handle does nothing.
class [[nodiscard]] TANDEM_API HookHandle {
 public:
  HookHandle() = default;
  /// `remove` removes the hook; called at most once.
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  HookHandle(HookHandle&& other) noexcept : remove_(std::exchange(other.remove_, nullptr)) {}
  HookHandle& operator=(HookHandle&& other) noexcept {
    std::swap(remove_, other.remove_);
    return *this;
  }
  ~HookHandle() { remove(); }
  /// Removes the hook now.
  void remove() {
    if (auto f = std::exchange(remove_, nullptr)) f();
  }

 private:
  std::function<void()> remove_;
};

}}  // namespace tandem::v0
