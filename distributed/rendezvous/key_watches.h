// Callbacks for keys of a store. Private to distributed/.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>  // HookHandle

namespace tandem { inline namespace v0 { namespace distributed {

/// The callbacks of Store::watch, by key. Each is called once. Thread-safe. Callbacks run without the mutex of the
/// list, so they may call its member functions.
class KeyWatches {
 public:
  using F = std::function<void(const std::string& value)>;

  /// Removing the handle waits for a running `f`, unless f itself removes it.
  HookHandle add(const std::string& key, F f) {
    auto watch = std::make_shared<Watch>();
    watch->key = key;
    watch->f = std::move(f);
    std::lock_guard lock(state_->mutex);
    state_->watches.push_back(watch);
    return HookHandle([weak = std::weak_ptr(state_), watch] {
      if (const auto state = weak.lock()) {
        std::lock_guard guard(state->mutex);
        std::erase(state->watches, watch);
      }
      std::lock_guard running(watch->running);
      watch->f = {};
    });
  }

  /// The key has been set: calls its callbacks on this thread.
  void notify(const std::string& key, const std::string& value) {
    std::vector<std::shared_ptr<Watch>> found;
    {
      std::lock_guard lock(state_->mutex);
      std::erase_if(state_->watches, [&](const auto& watch) {
        if (watch->key != key) return false;
        found.push_back(watch);
        return true;
      });
    }
    for (const auto& watch : found) {
      std::lock_guard running(watch->running);
      if (const F f = std::exchange(watch->f, {})) f(value);
    }
  }

  std::vector<std::string> keys() const {
    std::lock_guard lock(state_->mutex);
    std::vector<std::string> keys;
    for (const auto& watch : state_->watches) keys.push_back(watch->key);
    return keys;
  }

 private:
  struct Watch {
    std::string key;
    std::recursive_mutex running;  ///< held while f runs; recursive: f may remove itself
    F f;
  };
  struct State {
    std::mutex mutex;
    std::vector<std::shared_ptr<Watch>> watches;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}}}  // namespace tandem::v0::distributed
