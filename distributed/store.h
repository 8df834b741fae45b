// Rendezvous and control plane of a job.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>  // HookHandle

namespace tandem::inline v0::distributed {

/// A key-value map that all ranks of a job share, and the place where a rank's end is noticed.  Safe from many threads.
class TANDEM_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value, waiting for it to be set.  Throws CommError naming the key when `timeout` has passed, and without waiting
  /// on where the key is not there and a rank has died or announced a failure (peer() is that rank).
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to the integer at `key` (0 if missing) and returns the sum.  The value is kept as decimal text.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;

  /// Tells every rank that `rank` failed: their on_failure callbacks run with this rank and reason.
  virtual void announce_failure(int rank, const std::string& reason) = 0;
  /// Calls f(rank, reason) from the control thread, once per rank, when a rank dies, leaves the job or announces a failure
  /// - also for those that did so before the call, then from this thread.  The reason is "died (its connection closed)",
  /// "left the job" or what announce_failure said.  rank is -1 where the store's host itself was lost.  f must not call
  /// the store.  Removing the handle waits for a running f, so whoever does it holds no lock that f takes.
  virtual HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) = 0;
};

/// For ranks that are threads of one process.
TANDEM_API std::shared_ptr<Store> make_memory_store();

}  // namespace tandem::inline v0::distributed
