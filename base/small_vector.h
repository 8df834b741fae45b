// A vector with inline storage for N elements.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

namespace tandem { inline namespace v0 {

/// Sequence of T; up to N elements are stored inside the object, more on the heap.
template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  explicit SmallVector(size_t n, const T& value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> values) : SmallVector(values.begin(), values.end()) {}
  template <class It>
  requires(!std::is_integral_v<It>) SmallVector(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  SmallVector(const SmallVector& other) : SmallVector(other.begin(), other.end()) {}
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) {
      SmallVector copy(other);
      clear_and_free();
      take(copy);
    }
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      clear_and_free();
      take(other);
    }
    return *this;
  }
  ~SmallVector() { clear_and_free(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }

  void push_back(T value) {
    if (size_ == capacity_) grow(capacity_ * 2);
    std::construct_at(data_ + size_, std::move(value));
    ++size_;
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void resize(size_t n, const T& value = T()) {
    if (n > capacity_) grow(n);
    while (size_ > n) pop_back();
    while (size_ < n) push_back(value);
  }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void clear() { resize(0); }
  void insert(size_t position, T value) {
    push_back(std::move(value));
    for (size_t i = size_ - 1; i > position; --i) std::swap(data_[i], data_[i - 1]);
  }
  void erase(size_t position) {
    for (size_t i = position; i + 1 < size_; ++i) data_[i] = std::move(data_[i + 1]);
    pop_back();
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    size_t i = 0;
    while (i < a.size_ && i < b.size_ && a.data_[i] == b.data_[i]) ++i;
    return i == a.size_ && i == b.size_;
  }

 private:
  T* local() { return std::launder(reinterpret_cast<T*>(storage_)); }
  [[gnu::noinline]] void grow(size_t capacity) {  // rare, so not inlined
    T* larger = static_cast<T*>(::operator new(capacity * sizeof(T), std::align_val_t(alignof(T))));
    std::uninitialized_move(begin(), end(), larger);
    const size_t size = size_;
    clear_and_free();
    data_ = larger;
    size_ = size;
    capacity_ = capacity;
  }
  void clear_and_free() {
    std::destroy(begin(), end());
    if (data_ != local()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = local();
    size_ = 0;
    capacity_ = N;
  }
  /// Moves the elements out of `other`; *this must be empty and inline.
  void take(SmallVector& other) {
    if (other.data_ == other.local()) {
      std::uninitialized_move(other.begin(), other.end(), data_);
      size_ = other.size_;
      std::destroy(other.begin(), other.end());
    } else {
      data_ = other.data_;
      size_ = other.size_;
      capacity_ = other.capacity_;
    }
    other.data_ = other.local();
    other.size_ = 0;
    other.capacity_ = N;
  }

  alignas(T) std::byte storage_[N * sizeof(T)];
  T* data_ = local();
  size_t size_ = 0;
  size_t capacity_ = N;
};

}}  // namespace tandem::v0
