// Counters that peers poll, and the wake-up of sleeping peers. Private to distributed/backends/shm.
#pragma once

#include <atomic>
#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/distributed/backends/shm/futex.h>
#include <tandem/distributed/backends/shm/segment.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Publishes counters of one rank and wakes sleeping peers.
class Notifier {
 public:
  Notifier(const Mapping& mapping, int rank) : mapping_(mapping), rank_(rank) {}

  void notify(int rank) const {
    std::atomic<uint32_t>& count = mapping_.doorbell(rank).count;
    count.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(count);
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
