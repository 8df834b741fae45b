// Notification of the calls of a module.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/base/ref_counted.h>

namespace tandem { inline namespace v0 {

/// Is notified of the calls of a module: DistributedDataParallel gathers divided parameters for their time.
class TANDEM_API ModuleObserver : public RefCounted {
 public:
  virtual void enter() = 0;           ///< before the call
  virtual void leave() noexcept = 0;  ///< after the call, also if it throws; not if enter() has thrown
};

/// Notifies an observer, which may be null, of one call.
class ObservedCall {
 public:
  explicit ObservedCall(const RefPtr<ModuleObserver>& observer) {  ///< calls enter()
    if (!observer) [[likely]]
      return;
    observer->enter();
    observer_ = observer;
  }
  ~ObservedCall() {
    if (observer_) observer_->leave();
  }
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

 private:
  RefPtr<ModuleObserver> observer_;
};

}}  // namespace tandem::v0
