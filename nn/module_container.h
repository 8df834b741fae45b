// Modules whose children have positions: the base of Sequential, ModuleList and ModuleDict.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A Base (Module or Layer) whose children are of class T, and may be replaced and removed.
template <class Base, class T>
class ModuleContainer : public Base {
 public:
  /// Iterates over pointers to the children; invalid after a change of the container.
  class Iterator {
   public:
    /// Points to the child at `position`.
    Iterator(const ModuleContainer* container, size_t position) : container_(container), position_(position) {}
    T* operator*() const { return container_->child(position_); }  ///< the child
    Iterator& operator++() {                                       ///< moves to the next child
      ++position_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.position_ == b.position_; }

   private:
    const ModuleContainer* container_;
    size_t position_;
  };

  int64_t size() const { return static_cast<int64_t>(this->children_.size()); }  ///< number of children
  Iterator begin() const { return {this, 0}; }                                   ///< iterates over the children
  Iterator end() const { return {this, this->children_.size()}; }                ///< past the last child

 protected:
  /// The child at a position.
  T* child(size_t position) const { return static_cast<T*>(this->children_[position].module.get()); }
  /// The name of the child at a position.
  const std::string& child_name(size_t position) const { return this->children_[position].name; }
  /// Adds a child whose name is its position, and renames the following ones.
  void insert_at(size_t position, std::unique_ptr<Module> module) {
    this->insert_child(position, std::to_string(size()), std::move(module));
    this->rename_child(position, std::to_string(position));
    this->renumber(position + 1, 1);
  }

 private:
  const ModuleClass* element_class() const final { return &Module::class_of<T>(); }
};

/// A list, whose children are named "0", "1", ... as in PyTorch. All functions with an index throw IndexError for
/// indices outside [0, size()).
template <class Base, class T>
class IndexedContainer : public ModuleContainer<Base, T> {
 public:
  /// Appends a module U(args...). The last argument may be U::Options in braces, as in Module::add.
  template <class U, class... Args>
  requires std::constructible_from<U, Args...> U& append(Args&&... args) {
    return this->template add<U>(next(), std::forward<Args>(args)...);
  }
  template <class U = T>
  U& append(typename U::Options options) {
    return this->template add<U>(next(), std::move(options));
  }
  template <class U = T, class A>
  U& append(A&& a, typename U::Options options) {
    return this->template add<U>(next(), std::forward<A>(a), std::move(options));
  }
  template <class U = T, class A, class B>
  U& append(A&& a, B&& b, typename U::Options options) {
    return this->template add<U>(next(), std::forward<A>(a), std::forward<B>(b), std::move(options));
  }
  template <class U = T, class A, class B, class C>
  U& append(A&& a, B&& b, C&& c, typename U::Options options) {
    return this->template add<U>(next(), std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                                 std::move(options));
  }
#ifdef __clang__  // lists all overloads for a deleted one
  template <class U>
  auto& append(NoSuchConstructorOrOption, ...) {
    static_assert(kNever<U>, "U has no such constructor, or U::Options has no such field");
    return reinterpret_cast<U&>(*this);
  }
#else
  template <class U>
  U& append(NoSuchConstructorOrOption, ...) = delete;  // U has no such constructor, or U::Options has no such field
#endif
  /// Appends a T(args...), or the argument of Module::add_module.
  template <class... Args>
  auto& append(Args&&... args) {
    if constexpr (std::constructible_from<T, Args...>) {
      return this->template add<T>(next(), std::forward<Args>(args)...);
    } else {
      return this->add_module(next(), std::forward<Args>(args)...);
    }
  }
  /// Inserts a module, as Module::add_module, at `index`, which may be size(). The indices of the following modules
  /// increase by one.
  template <class M>
  auto& insert(int64_t index, M&& module) {
    check_index(index, this->size() + 1);
    auto child = this->make_child(std::forward<M>(module));
    auto* const result = child.get();
    this->insert_at(static_cast<size_t>(index), std::move(child));
    return *result;
  }
  /// Replaces a module, as Module::add_module, and returns the old one. References to the old module stay valid as long
  /// as the result.
  template <class M>
  std::unique_ptr<Module> replace(int64_t index, M&& module) {
    return this->replace_module(this->child_name(check_index(index, this->size())),
                                this->make_child(std::forward<M>(module)));
  }
  /// Removes a module and returns it. The indices of the following modules decrease by one.
  std::unique_ptr<Module> pop(int64_t index) {
    return this->remove_module(this->child_name(check_index(index, this->size())));
  }
  T& operator[](int64_t index) const { return *this->child(check_index(index, this->size())); }  ///< one child

 private:
  bool numbers_children() const final { return true; }
  std::string next() const { return std::to_string(this->size()); }  ///< the name of an appended module
  size_t check_index(int64_t index, int64_t size) const {
    const std::string type = this->type_name();
    TANDEM_CHECK(IndexError, index >= 0 && index < size, type.substr(0, type.find('<')), ": index is ", index,
                 ", expected 0 <= index < ", size);
    return static_cast<size_t>(index);
  }
};

}}}  // namespace tandem::v0::nn
