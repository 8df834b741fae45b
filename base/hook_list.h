// A list of hooks.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <tandem/base/hook_handle.h>
#include <tandem/base/small_vector.h>

namespace tandem { inline namespace v0 {

/// Hooks of type F, in the order in which they were added. An empty list has allocated nothing.
///
/// A hook may add and remove hooks, or destroy the list. If a hook throws, run() ends with this exception. Hooks that
/// are added during a run are called from the next run on; removed hooks are no longer called. Concurrent runs are
/// safe, changes are not.
template <class F>
class HookList {
 public:
  /// Adds a hook, which is removed with the handle. The handle may outlive the list.
  HookHandle add(F hook) {
    if (!entries_) entries_ = std::make_shared<Entries>();
    entries_->push_back(std::make_shared<Entry>(std::move(hook)));
    return HookHandle([entries = std::weak_ptr(entries_), entry = std::weak_ptr(entries_->back())] {
      if (const auto list = entries.lock()) remove(*list, entry.lock());
    });
  }

  bool empty() const { return !entries_ || entries_->empty(); }

  /// Calls call(hook) for each hook.
  template <class Call>
  void run(Call&& call) const {
    if (empty()) return;
    const Entries entries = *entries_;  // keeps removed hooks, of which one may be running, alive
    for (const auto& entry : entries) {
      if (entry->is_listed) call(entry->hook);
    }
  }

 private:
  struct Entry {
    explicit Entry(F f) : hook(std::move(f)) {}
    F hook;
    bool is_listed = true;
  };
  using Entries = SmallVector<std::shared_ptr<Entry>, 4>;

  static void remove(Entries& entries, const std::shared_ptr<Entry>& entry) {
    entry->is_listed = false;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i] == entry) return entries.erase(i);
    }
  }

  std::shared_ptr<Entries> entries_;  ///< null before the first hook
};

}}  // namespace tandem::v0
