// Base class of stores that forward most calls to another store. Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    return store_->get_from(key, ranks, timeout);
  }
  bool contains(const std::vector<std::string>& keys) override { return store_->contains(keys); }
  int64_t num_keys() override { return store_->num_keys(); }
  int64_t add(const std::string& key, int64_t delta) override { return store_->add(key, delta); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_->compare_set(key, expected, desired);
  }
  void offer(const std::string& key, const std::string& value) override { store_->offer(key, value); }
  HookHandle watch(const std::string& key, std::function<void(const std::string& value)> f) override {
    return store_->watch(key, std::move(f));
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }
  void announce_failure(int rank, const std::string& reason) override { store_->announce_failure(rank, reason); }
  void leave(int rank) override { store_->leave(rank); }
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override {
    return store_->on_failure(std::move(f));
  }
  bool is_silent() const override { return store_->is_silent(); }
  /// Called when another rank deletes all keys that begin with `prefix` (see GroupStore).
  virtual void forget(const std::string& prefix) { forget_keys(store_.get(), prefix); }
  static void forget_keys(Store* store, const std::string& prefix) {
    if (auto* const forwarding = dynamic_cast<ForwardingStore*>(store)) forwarding->forget(prefix);
  }

 protected:
  const std::shared_ptr<Store> store_;
};

}}}  // namespace tandem::v0::distributed
