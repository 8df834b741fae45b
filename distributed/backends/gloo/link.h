// One connection to another rank, in frames that neither side can overrun. Private to distributed/backends/gloo.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backends/gloo/frame.h>

namespace gloo::transport {
class Buffer;
class Pair;
}  // namespace gloo::transport

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// Sizes that all ranks of a group agree on.
struct Tuning {
  int64_t chunk_bytes = 256 << 10;  ///< of data in a frame at most; a multiple of 64
  int slots = 16;                   ///< data frames on the way, in one direction of a link; at most 64
  int records = 32;                 ///< frames on the way
};

/// A frame that has arrived.
struct Frame {
  int peer = -1;
  FrameType type = FrameType::kCredit;
  uint8_t stream = 0;
  uint64_t channel = 0;
  uint64_t offset = 0;
  std::string payload;
  uint64_t data_index = 0;          ///< kData: for Link::release
  const std::byte* data = nullptr;  ///< until it is released
  int64_t data_bytes = 0;
};

/// What a link's thread tells.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void frame_arrived(Frame frame) = 0;
  /// More of what was sent has arrived, or more can be sent.
  virtual void link_moved(int peer) = 0;
  /// Link::flush should be called.
  virtual void flush_wanted() = 0;
  /// The connection is gone, or where the peer `left` soon will be; told once, the last event.
  virtual void link_lost(int peer, const std::string& why, bool left) = 0;
};

/// The ring of records and the ring of slots of both directions.
///
/// Gloo puts what arrives into buffers that were named before, and ends the process where it does not fit. So each side
/// gives the other a ring of small records and a ring of data slots, of fixed sizes, and every frame carries how many
/// of them are free again. A data frame is two writes: the data, straight from the caller's memory, into the next
/// slot, and a record. One thread of the link waits for records, in their order, checks them, and hands them on.
///
/// What is sent is queued, and written in flush(), which is called while Gloo's own thread stands still: that one polls
/// for a lock which the writer holds, and where both share one core the poll takes the time that the writer needs.
///
/// The functions may be called from any thread, release() and try_send_data() from one at a time. Nothing blocks, and
/// nothing throws for a lost connection: what is sent is dropped, and link_lost is told.
class Link {
 public:
  /// `pair` is connected and has read nothing yet. `rank` and `peer` are the ends.
  Link(::gloo::transport::Pair* pair, int rank, int peer, const Tuning& tuning, size_t max_payload, LinkEvents* events);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Begins to receive.
  void start();
  /// Joins the link's thread, after the connection was shut down from outside.
  void stop();

  /// Sends a record as soon as there is room.
  void send(FrameType type, std::string payload);
  /// The same for the last record that matters: no data is sent from now on.
  void send_poison(std::string payload);
  /// Whether memory that try_send_data was given may still be read.
  bool reads_memory();
  /// Sends up to Tuning::chunk_bytes from memory that stays as it is until arrived_data() has passed the number
  /// returned, from 1; 0 where there is no room now. The peer tells at once that it has arrived where that is wanted,
  /// and for every quarter of the slots; else with its next record.
  uint64_t try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream, uint64_t offset,
                         bool want_ack);
  /// Data frames of this side that have arrived.
  uint64_t arrived_data() const { return acked_data_.load(std::memory_order_acquire); }
  /// Gives the slot of the data frame `index` back.
  void release(uint64_t index);
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  /// Writes what can be written. On one thread at a time. True if that was more at once than ever before: Gloo has then
  /// made the connection's send buffer that small.
  bool flush();
  /// Whether the peer has seen all records up to the last that asked for it, such as a goodbye, or cannot any more.
  bool is_heard();

 private:
  struct Ring;
  struct Entry {
    FrameHeader header;
    std::string payload;
    const std::byte* data = nullptr;
  };

  void run();
  void receive_next();
  void acknowledge(const FrameHeader& header);
  uint64_t quarter() const { return static_cast<uint64_t>(std::max(tuning_.slots / 4, 1)); }
  bool has_record_room(int reserve) const;
  bool next_entry(Entry& entry);
  void write(const Entry& entry);
  void lose(const std::string& why, bool left = false);

  const int peer_;
  const Tuning tuning_;
  const size_t max_payload_;
  const size_t record_bytes_;
  LinkEvents* const events_;
  std::unique_ptr<Ring> ring_;
  std::thread thread_;

  // Receiving: the link's thread.
  Expected expected_;
  std::atomic<uint64_t> arrived_records_{0};
  std::atomic<uint64_t> arrived_data_{0};
  std::atomic<uint64_t> acked_data_{0};
  std::atomic<bool> lost_{false};
  std::atomic<bool> closed_{false};  // the connection has ended for Gloo too

  // Of whoever calls flush().
  uint64_t written_data_ = 0;
  size_t largest_write_ = 0;

  std::mutex mutex_;  // of what follows
  std::deque<Entry> queue_;
  bool cannot_write_ = false;
  bool poisoned_ = false;
  bool told_lost_ = false;
  uint64_t queued_data_ = 0;  // data frames that were accepted
  uint64_t sent_records_ = 0;
  uint64_t sent_data_ = 0;
  uint64_t acked_records_ = 0;
  uint64_t wanted_ack_ = 0;      // records up to the last that asked for an acknowledgement
  uint64_t freed_data_ = 0;      // slots of the peer that may be written again
  uint64_t released_data_ = 0;   // slots of this side that the peer may write again
  uint64_t released_ahead_ = 0;  // bit i: slot released_data_ + i is free too
  uint64_t told_records_ = 0;    // what the peer knows
  uint64_t told_released_ = 0;
  bool credit_due_ = false;
};

}}}  // namespace tandem::v0::distributed::gloo
