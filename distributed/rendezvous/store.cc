#include <tandem/distributed/store.h>

#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/distributed/rendezvous/key_value_map.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

class PrefixStore final : public ForwardingStore {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : ForwardingStore(std::move(store)), prefix_(std::move(prefix)) {
    TANDEM_CHECK(ValueError, store_ != nullptr, "make_prefix_store: the store is null");
  }

  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    return store_->get_from(prefix_ + key, ranks, timeout);
  }
  bool contains(const std::vector<std::string>& keys) override {
    std::vector<std::string> full;
    for (const std::string& key : keys) full.push_back(prefix_ + key);
    return store_->contains(full);
  }
  int64_t add(const std::string& key, int64_t delta) override { return store_->add(prefix_ + key, delta); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  void offer(const std::string& key, const std::string& value) override { store_->offer(prefix_ + key, value); }
  HookHandle watch(const std::string& key, std::function<void(const std::string& value)> f) override {
    return store_->watch(prefix_ + key, std::move(f));
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }

 private:
  const std::string prefix_;
};

}  // namespace

void Store::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  for (const std::string& key : keys) {
    std::chrono::milliseconds left{0};
    if (timeout.count() != 0) {
      left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      left = std::max(left, std::chrono::milliseconds(1));
    }
    try {
      get(key, left);
    } catch (const CommError& e) {
      if (e.peer() >= 0 || timeout.count() == 0 || std::chrono::steady_clock::now() < deadline) throw;
      std::string missing;
      for (const std::string& other : keys) {
        if (!contains({other})) missing += str(" '", other, "'");
      }
      // All keys were set at the last moment, which counts as in time.
      if (missing.empty()) return;
      throw CommError(str("store: not all of ", keys.size(), " keys were set within ", format_seconds(timeout),
                          "\n  missing:", missing),
                      e.rank());
    }
  }
}

std::shared_ptr<Store> make_prefix_store(const std::string& prefix, std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(prefix, std::move(store));
}

}}}  // namespace tandem::v0::distributed
