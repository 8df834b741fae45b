// Key-value store for rendezvous and failure detection of a job.
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

/// A key-value store shared by all ranks of a job, as torch.distributed.Store. It also reports failures of ranks.
/// Thread-safe.
///
/// Keys and values are arbitrary bytes. The keys and values of one call have at most 16 MiB in total; otherwise the
/// call throws ValueError.
///
/// Timeouts. get, get_from and wait block until keys are set, for at most `timeout`; 0: no timeout. All other calls
/// return immediately; they throw CommError if the store does not respond within its own limit: 30 seconds for the TCP
/// store (no limit if TcpStoreSettings::timeout is 0; two seconds for announce_failure and leave),
/// FileStoreOptions::lock_timeout for the file store. All calls but leave throw CommError if the host of the store is
/// lost. announce_failure does not throw if the host is only slow.
class TANDEM_API Store {
 public:
  virtual ~Store() = default;

  /// Sets or overwrites the value of `key`.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Waits until `key` is set and returns its value. Throws CommError naming the key after `timeout`, or as soon as a
  /// rank has died or announced a failure while the key is not set; peer() is then that rank.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) { return get_from(key, {}, timeout); }
  /// As get(), but only failures of `ranks` (empty: of any rank) and the loss of the store's host end the wait early.
  virtual std::string get_from(const std::string& key, const std::vector<int>& ranks,
                               std::chrono::milliseconds timeout) = 0;
  /// Waits until all keys are set. Throws as get(), naming the missing keys.
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// Whether all keys are set.
  virtual bool contains(const std::vector<std::string>& keys) = 0;
  /// Number of keys.
  virtual int64_t num_keys() = 0;

  /// Atomically adds `delta` to the integer at `key` (0 if missing) and returns the sum. Integers are stored as
  /// decimal text. Throws CommError if the value is not an integer, or on overflow.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  /// Atomically sets `key` to `desired` if its value is `expected`, or if it is missing and `expected` is empty.
  /// Returns the value afterwards; empty if the key is missing.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  /// Like compare_set(key, "", value), but does not wait for the response. Does not throw.
  virtual void offer(const std::string& key, const std::string& value) = 0;
  /// Calls f(value) once, as soon as `key` is set: on the calling thread if it is set already, otherwise on a thread of
  /// the store, or of the caller that sets it. f must not call the store. Removing the handle waits for a running f, so
  /// the caller must not hold a lock that f acquires.
  virtual HookHandle watch(const std::string& key, std::function<void(const std::string& value)> f) = 0;
  /// Deletes `key`. Returns whether it existed.
  virtual bool delete_key(const std::string& key) = 0;

  /// Reports to all ranks that `rank` failed, and calls their on_failure callbacks. Blocks for at most two seconds
  /// until the store has received the report, because the caller is usually about to exit.
  virtual void announce_failure(int rank, const std::string& reason) = 0;
  /// Reports to all ranks that this rank, `rank`, left the job without failure. The store must not be used afterwards.
  /// Does not throw.
  virtual void leave(int rank) = 0;
  /// Registers a callback. f(rank, reason) is called once per rank that dies, leaves the job or announces a failure:
  /// on the calling thread for earlier events, later on a thread of the store. `reason` is "died (its connection
  /// closed)", "left the job", or the reason of announce_failure; `rank` is -1 if the host of the store was lost. f
  /// must not call the store. Removing the handle waits for a running f, so the caller must not hold a lock that f
  /// acquires.
  virtual HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) = 0;
  /// Whether the host of the store has not answered for so long that it may be lost. Does not wait.
  virtual bool is_silent() const { return false; }
};

/// A store for ranks that are threads of one process. Detects only reported failures (leave, announce_failure).
TANDEM_API std::shared_ptr<Store> make_memory_store();

/// Options of make_file_store.
struct FileStoreOptions {
  int world_size = 0;  ///< the last of this many ranks to leave removes the file; 0: the file is kept
  /// Timeout for the lock of the file.
  std::chrono::milliseconds lock_timeout{30000};
};

/// A store for processes that share a file, on one host or over NFS with working locks. The file is a log; changes are
/// appended under a lock. If a process is killed while it writes, the next writer removes the incomplete record.
/// Waiting calls poll the file at least every 10 ms.
///
/// Detects only reported failures (leave, announce_failure): a killed rank is detected by the backend of the group if
/// possible, otherwise by a timeout. Remove a file of an earlier run first, because it contains the keys of that run.
/// Throws IoError if the file cannot be opened or is not a tandem store.
TANDEM_API std::shared_ptr<Store> make_file_store(const std::string& path, FileStoreOptions options = {});

/// Options of make_tcp_store.
struct TcpStoreSettings {
  std::string host = "127.0.0.1";  ///< address of the rank that hosts the store
  int port = 29500;                ///< of the host
  bool is_host = false;            ///< this rank hosts the store; its leave() waits until the other ranks have left
  int rank = 0;                    ///< of this process
  int world_size = 1;              ///< number of ranks of the job
  /// Shared secret, 64 hexadecimal digits; connections without it are rejected. Empty: TANDEM_TOKEN, else derived from
  /// the name of the job (TORCHELASTIC_RUN_ID), which separates jobs but is not secret.
  std::string token = {};
  /// Timeout for connecting to the host, and for the host's leave(). 0, for debugging: no timeout, and no limit of 30
  /// seconds for responses either.
  std::chrono::milliseconds timeout{300000};
};

/// A store for processes on one or several hosts. Each rank keeps one connection: the death of a rank is detected
/// within a second, the loss of a host within ten seconds, independent of the timeout. Throws ValueError for invalid
/// settings, IoError if the host cannot listen, and CommError if the server does not respond or is not a tandem store.
TANDEM_API std::shared_ptr<Store> make_tcp_store(const TcpStoreSettings& settings);

/// A view of `store` that prepends `prefix` to all keys. num_keys() counts all keys of `store`.
TANDEM_API std::shared_ptr<Store> make_prefix_store(const std::string& prefix, std::shared_ptr<Store> store);

}}}  // namespace tandem::v0::distributed
