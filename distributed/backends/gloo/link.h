// One connection to another rank: frames with flow control, so that neither side overruns the other. Private to
// distributed/backends/gloo.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
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
  int64_t chunk_bytes = 256 << 10;  ///< maximum data of a frame; a multiple of 64
  int slots = 16;                   ///< data frames in flight in one direction of a link; at most 64
  int records = 32;                 ///< records in flight in one direction
};

/// A frame that has arrived.
struct Frame {
  int peer = -1;
  FrameType type = FrameType::kCredit;
  uint8_t stream = 0;
  uint64_t channel = 0;
  uint64_t offset = 0;
  std::string payload;
  uint64_t data_index = 0;          ///< kData: argument of Link::release
  const std::byte* data = nullptr;  ///< valid until the frame is released
  int64_t data_bytes = 0;
};

/// Callbacks of a link. They run on the link's thread, except flush_wanted, which may run on any thread.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void frame_arrived(Frame frame) = 0;
  /// More sent data has arrived at the peer, or more data can be sent.
  virtual void link_moved(int peer) = 0;
  /// Link::flush should be called.
  virtual void flush_wanted() = 0;
  /// The connection is lost, or the peer `left` the group and will close it soon. Called once, as the last event.
  virtual void link_lost(int peer, const std::string& why, bool left) = 0;
};

/// The ring of records and the ring of data slots of both directions.
///
/// Gloo writes received data into buffers that were registered before, and terminates the process if the data does not
/// fit. So each side gives the other a ring of small records and a ring of data slots, both of fixed size, and every
/// frame carries the number of entries that are free again. A data frame consists of two writes: the data, directly
/// from the caller's memory into the next slot, and then a record. The link's thread waits for records in order, checks
/// them, and passes them on.
///
/// Frames are queued and then written in flush(), which is called while Gloo's own thread is paused. Gloo's thread
/// polls for a lock that the writer holds; if both share one core, the polling takes CPU time that the writer needs.
///
/// The functions are thread-safe, but release() and try_send_data() must each be called by one thread at a time. No
/// function blocks, and no function throws if the connection is lost: the data is dropped and link_lost is called.
class Link {
 public:
  /// `pair` is connected and has not read anything yet. `rank` and `peer` are its two ends.
  Link(::gloo::transport::Pair* pair, int rank, int peer, const Tuning& tuning, size_t max_payload, LinkEvents* events);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Starts the receiving thread.
  void start();
  /// Joins the receiving thread. The connection must have been shut down before.
  void stop();

  /// Queues a record, which is sent as soon as the ring has space.
  void send(FrameType type, std::string payload);
  /// Like send(), for the last important record: no data is sent after it.
  void send_poison(std::string payload);
  /// Whether memory that was passed to try_send_data may still be read.
  bool reads_memory();
  /// Sends up to Tuning::chunk_bytes. The memory must not change until arrived_data() has reached the returned number,
  /// which counts from 1. Returns 0 if there is no space now. The peer acknowledges the data immediately if `want_ack`
  /// is set, and after every quarter of the slots; otherwise with its next record.
  uint64_t try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream, uint64_t offset,
                         bool want_ack);
  /// Number of data frames of this side that have arrived.
  uint64_t arrived_data() const { return acked_data_.load(std::memory_order_acquire); }
  /// Returns the slot of data frame `index` to the peer.
  void release(uint64_t index);
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  /// Writes all frames that can be written now. One thread at a time. True if a write was larger than all previous
  /// ones: Gloo has then reduced the connection's send buffer to that size.
  bool flush();
  /// Whether the peer has acknowledged all records up to the last that requested it, such as a goodbye, or cannot
  /// acknowledge them any more.
  bool all_acked();

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
  std::atomic<bool> closed_{false};  // the connection has also ended for Gloo

  // Used only by the thread that calls flush().
  uint64_t written_data_ = 0;
  size_t largest_write_ = 0;

  std::mutex mutex_;  // guards the members below
  std::deque<Entry> queue_;
  bool cannot_write_ = false;
  bool poisoned_ = false;
  bool reported_lost_ = false;
  uint64_t queued_data_ = 0;  // number of accepted data frames
  uint64_t sent_records_ = 0;
  uint64_t sent_data_ = 0;
  uint64_t acked_records_ = 0;
  uint64_t wanted_ack_ = 0;        // number of the last record that requested an acknowledgement, plus 1
  uint64_t freed_data_ = 0;        // slots of the peer that may be written again
  uint64_t released_data_ = 0;     // slots of this side that the peer may write again
  uint64_t released_ahead_ = 0;    // bit i: slot released_data_ + i is free too
  uint64_t reported_records_ = 0;  // values that were sent to the peer last
  uint64_t reported_released_ = 0;
  bool credit_due_ = false;
};

}}}  // namespace tandem::v0::distributed::gloo
