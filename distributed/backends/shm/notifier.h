// Counters that peers poll, and the wake-up of sleeping peers. Private to distributed/backends/shm.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include <tandem/distributed/backends/shm/segment.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Publishes counters of one rank and wakes sleeping peers.
class Notifier {
 public:
  Notifier(const Mapping& mapping, int rank) : mapping_(mapping), rank_(rank) {}

  void notify(int rank) const {
    std::atomic<uint32_t>& count = mapping_.doorbell(rank).count;
    count.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  /// Sleeps while this rank's doorbell has the count `before`, for `timeout` at most; may return earlier.
  void wait(uint32_t before, std::chrono::nanoseconds timeout) const {
    const timespec relative = {static_cast<time_t>(timeout.count() / 1000000000),
                               static_cast<long>(timeout.count() % 1000000000)};
    syscall(SYS_futex, &mapping_.doorbell(rank_).count, FUTEX_WAIT, before, &relative, nullptr, 0);
  }

  /// Stores a counter of this rank that all peers poll, and wakes sleeping peers.
  void publish(std::atomic<int64_t>& counter, int64_t value) const {
    // Sequentially consistent on both sides: either this rank sees that a peer is about to sleep and rings its
    // doorbell, or the peer, which checks again after it has registered as a sleeper, sees the counter.
    counter.store(value, std::memory_order_seq_cst);
    const int size = static_cast<int>(mapping_.segments.size());
    for (int rank = 0; rank < size; ++rank) {
      if (rank != rank_) notify_sleeper(rank);
    }
  }
  /// Like publish(), for a counter that only `rank` polls.
  void publish_to(int rank, std::atomic<int64_t>& counter, int64_t value) const {
    counter.store(value, std::memory_order_seq_cst);
    notify_sleeper(rank);
  }

 private:
  void notify_sleeper(int rank) const {
    if (mapping_.header(rank).sleepers.load(std::memory_order_seq_cst) != 0) notify(rank);
  }

  const Mapping& mapping_;
  const int rank_;
};

}}}  // namespace tandem::v0::distributed::shm
