// Rendezvous and control plane of a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>  // HookHandle

namespace tandem { inline namespace v0 { namespace distributed {

/// A key-value map that all ranks of a job share, and the place where a rank's end is noticed.  Safe from many threads.
///
/// Keys and values are any bytes; those of one call are together at most 16 MiB long, else it throws ValueError.
///
/// Only get, get_from and wait take a timeout, for the key to be set; 0 is none.  All other calls are answered at once, and
/// have a limit for that which is the store's own: 30 seconds for the TCP store's host (none where TcpStoreSettings::timeout
/// is 0, and two seconds for announce_failure and leave), FileStoreOptions::lock_timeout for a file; in memory there is none.
/// Every call but leave throws CommError when the store's host is lost, and those without a timeout when that limit has
/// passed; announce_failure does not where the host only has not answered yet.
class TANDEM_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;

  /// The value, waiting for it to be set.  Throws CommError naming the key when `timeout` has passed, and without waiting
  /// on where the key is not there and a rank has died or announced a failure (peer() is that rank).
  std::string get(const std::string& key, std::chrono::milliseconds timeout) { return get_from(key, {}, timeout); }
  /// As get, but only the failures of `ranks` end it early (empty: of any rank), and the loss of the store's host.
  virtual std::string get_from(const std::string& key, const std::vector<int>& ranks,
                               std::chrono::milliseconds timeout) = 0;
  /// Returns when all keys are there.  Throws as get, naming those that are missing.
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// Whether all keys are there now.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// How many keys there are.
  virtual int64_t num_keys() = 0;

  /// Adds to the integer at `key` (0 if missing) and returns the sum.  The value is kept as decimal text.  Throws
  /// CommError where the value is not an integer.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  /// Sets the key to `desired` if its value is `expected`, or if it is missing and `expected` is empty.  Returns the value
  /// after that; empty where the key is still missing.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  /// Whether the key was there.
  virtual bool delete_key(const std::string& key) = 0;

  /// Tells every rank that `rank` failed: their on_failure callbacks run with this rank and reason.  Whoever says so is
  /// about to end: it waits for two seconds at most until the store has heard it.
  virtual void announce_failure(int rank, const std::string& reason) = 0;
  /// Tells every rank that this one, `rank`, leaves the job in peace; it uses the store no more.  Never throws.
  virtual void leave(int rank) = 0;
  /// Calls f(rank, reason) from the control thread, once per rank, when a rank dies, leaves the job or announces a failure
  /// - also for those that did so before the call, then from this thread.  The reason is "died (its connection closed)",
  /// "left the job" or what announce_failure said.  rank is -1 where the store's host itself was lost.  f must not call
  /// the store.  Removing the handle waits for a running f, so whoever does it holds no lock that f takes.
  virtual HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) = 0;
};

/// For ranks that are threads of one process.  Of a rank's end it knows what leave and announce_failure say.
TANDEM_API std::shared_ptr<Store> make_memory_store();

struct FileStoreOptions {
  int world_size = 0;  ///< the rank that leaves last removes the file; 0: it stays
  /// How long a call waits for the file's lock, which everybody else holds for moments only.
  std::chrono::milliseconds lock_timeout{30000};
};

/// For processes that share a file, on one host or by NFS with working locks.  The file is a log that every change is
/// appended to, under a lock; who is killed while it writes leaves a torn end, which the next writer cuts off.  Waiting is
/// polling, every 10 ms at most.
///
/// There are no connections: of a rank's end it knows what leave and announce_failure say, so that a rank that is killed
/// is noticed by the group's backend where that can, else at the deadline.  A file that an earlier run left behind still
/// holds that run's keys: remove it first.  Throws IoError where the file cannot be opened, or is something else.
TANDEM_API std::shared_ptr<Store> make_file_store(const std::string& path, FileStoreOptions options = {});

struct TcpStoreSettings {
  std::string host = "127.0.0.1";  ///< where rank 0, or whoever hosts the store, listens
  int port = 29500;
  bool is_host = false;  ///< this rank runs the store, until it leaves: then it waits for the others to have left
  int rank = 0;
  int world_size = 1;
  /// Whoever does not know it is turned away: 64 hexadecimal digits.  Empty: TANDEM_TOKEN, else one that follows from the
  /// job's name (TORCHELASTIC_RUN_ID), which keeps jobs apart but is no secret.
  std::string token = {};
  /// For the host to be there, and, when it leaves, for the others.  0: none, and none for the host's answers either,
  /// which else must come within 30 seconds: for debuggers.
  std::chrono::milliseconds timeout{300000};
};

/// For processes, of one host or several.  Each rank keeps one connection, by whose end the others notice within a second
/// that it died; a host that vanishes is noticed within ten, whatever the timeout.  Throws IoError where the host cannot
/// listen, CommError where the store does not answer, or something else than a store does.
TANDEM_API std::shared_ptr<Store> make_tcp_store(const TcpStoreSettings& settings);

/// The keys of `store` that begin with `prefix`, without it.  num_keys counts all.
TANDEM_API std::shared_ptr<Store> make_prefix_store(const std::string& prefix, std::shared_ptr<Store> store);

}}}  // namespace tandem::v0::distributed
