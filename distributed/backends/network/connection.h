// One authenticated stream to another rank: frames in both directions. Private to distributed/backends/network.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/distributed/backends/network/frame.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

/// Sizes that all ranks of a group agree on.
struct Tuning {
  int64_t chunk_bytes = 1 << 20;  ///< maximum data of a frame; a multiple of 64
};

/// A frame that has arrived; its data is in the memory of Connection::post.
struct Frame {
  int peer = -1;
  FrameType type = FrameType::kSignature;
  uint8_t stream = 0;
  uint64_t channel = 0;
  uint64_t offset = 0;  ///< of the data in its stream
  int64_t data_bytes = 0;
  std::string payload = {};
};

/// Flow control is the kernel's: a side sends as much as the socket takes, and reads only data for which memory is
/// posted. Data is sent from the caller's memory, and received into posted memory. Until memory is posted for data that
/// has arrived, nothing after it is read.
///
/// No function blocks. Sending functions and post() are thread-safe; receive() must be called by one thread at a time.
/// No function throws if the connection is lost: frames are dropped and ended() is set.
class Connection {
 public:
  Connection(FileDescriptor socket, int peer, const Tuning& tuning, size_t max_payload);

  int descriptor() const { return socket_.get(); }

  void send(FrameType type, std::string payload = {});
  /// Queues a frame of at most Tuning::chunk_bytes. The memory must not change until sent_data() has reached the
  /// returned number, which counts from 1. Returns 0 if there is no space now.
  uint64_t try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream, uint64_t offset);
  /// Number of data frames that the kernel has taken.
  uint64_t sent_data() const { return sent_data_.load(std::memory_order_acquire); }
  /// Sends a goodbye. From now on nothing else is sent, and data that arrives is dropped; a receive() that runs
  /// meanwhile may still write posted memory.
  void cancel();
  /// Writes what the socket takes. Returns whether data was sent that try_send_data has left.
  bool flush();
  bool is_unsent();
  /// Whether the peer's machine has received all frames, or cannot receive them any more.
  bool is_delivered();

  /// The next `num_bytes` of that stream, from `offset` on, are received into `memory`. Call receive() after it.
  void post(uint64_t channel, uint8_t stream, uint64_t offset, std::byte* memory, int64_t num_bytes);
  /// There may be data to read, or `has_ended`: there is, or the connection has closed.
  void set_readable(bool has_ended) {
    readable_ = true;
    if (has_ended) expect_end();
  }
  /// The peer has ended or will soon: receive() reads all that it has sent, also without posted memory. Thread-safe.
  void expect_end() { may_have_ended_ = true; }
  /// Reads what has arrived, but only a few frames of data while the peer is connected. Appends complete frames.
  void receive(std::vector<Frame>& frames);
  /// Bytes of data of that stream that have arrived before memory was posted for them: only after the connection ended.
  int64_t early_bytes(uint64_t channel, uint8_t stream);
  /// Why nothing more can arrive: "died (its connection closed)"; "" while it can.
  const std::string& ended() const { return ended_; }
  bool has_left() const { return has_left_; }
  /// The peer's machine does not respond: ends the connection after the data that has arrived.
  void give_up();

 private:
  struct Entry {
    std::string bytes = {};  // header and payload
    const std::byte* data = nullptr;
    size_t num_data = 0;
    size_t sent = 0;
  };
  struct Posted {
    uint64_t channel;
    uint8_t stream;
    uint64_t offset;
    std::byte* memory;
    uint64_t num_bytes;
  };
  static constexpr size_t kStaged = 4096;

  void enqueue(Entry entry, FrameHeader header, std::string_view payload);
  bool write();
  bool begin_frame();
  std::byte* find_memory(const Frame& frame);
  void take_early(std::vector<Frame>& frames);
  void receive_into_payload(size_t num_bytes);
  void finish_frame(std::vector<Frame>& frames);
  bool read();

  const FileDescriptor socket_;
  const int peer_;

  std::mutex send_mutex_;  // guards the members below
  std::deque<Entry> queue_;
  uint64_t num_sent_ = 0;
  uint64_t queued_data_ = 0;  // number of data frames that were accepted
  bool cannot_write_ = false;
  bool is_cancelled_ = false;
  std::atomic<uint64_t> sent_data_{0};

  std::mutex
      post_mutex_;  // guards posted_ and early_; receive(), which alone changes early_, reads it without the lock
  std::vector<Posted> posted_;
  std::deque<Frame> early_;  // data as payload, if the connection ends before memory is posted
  std::atomic<bool> drops_data_{false};
  std::atomic<bool> is_silent_{false};

  // Receiving.
  Expected expected_;
  std::byte staged_[kStaged];  // the next header, and what was read with it
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  bool in_frame_ = false;
  Frame frame_;  // that is being received
  std::byte* body_ = nullptr;
  size_t body_left_ = 0;
  bool readable_ = true;
  std::atomic<bool> may_have_ended_{false};
  bool has_left_ = false;
  std::string ended_;
};

}}}  // namespace tandem::v0::distributed::network
