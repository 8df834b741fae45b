// A non-owning reference to a callable object. It has the size of two pointers and never allocates.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace tandem { inline namespace v0 {

template <class Signature>
class FunctionRef;

/// Refers to a callable that must outlive the reference.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}}  // namespace tandem::v0
