// Intrusive reference counting: one word, no separate control block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Base class of objects held by RefPtr. Counting is thread-safe.
class TANDEM_API RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted();

  /// Number of RefPtr objects that own this object. It may change at any time if other threads have RefPtr objects.
  uint32_t use_count() const { return references_.load(std::memory_order_acquire); }

 private:
  template <class T>
  friend class RefPtr;
  void retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    // A sole owner needs no read-modify-write: there is no other reference that another thread could copy.
    if (references_.load(std::memory_order_acquire) == 1 || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const_cast<RefCounted*>(this)->destroy();
    }
  }
  /// Called when the last reference is gone; deletes by default.
  virtual void destroy() { delete this; }

  mutable std::atomic<uint32_t> references_{0};
};

/// Owning pointer to a RefCounted object; may be null.
template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}
  explicit RefPtr(T* p) : p_(p) {
    if (p_ != nullptr) p_->retain();
  }
  RefPtr(const RefPtr& other) : RefPtr(other.p_) {}
  RefPtr(RefPtr&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  template <class U>
  RefPtr(const RefPtr<U>& other) : RefPtr(other.get()) {}
  template <class U>
  RefPtr(RefPtr<U>&& other) noexcept : p_(other.detach()) {}
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~RefPtr() {
    if (p_ != nullptr) p_->release();
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  /// Gives up ownership without releasing.
  T* detach() { return std::exchange(p_, nullptr); }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

/// A new T(args...), owned by the result.
template <class T, class... Args>
RefPtr<T> make_ref(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}}  // namespace tandem::v0
