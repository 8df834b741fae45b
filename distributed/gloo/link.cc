#include <tandem/distributed/gloo/link.h>

#include <pthread.h>
#include <signal.h>

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include <tandem/base/error.h>

namespace tandem::inline v0::distributed::gloo {

namespace {

constexpr int kReserve = 4;  // records that only acknowledgements and poison may use
constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory allocate(size_t num_bytes) { return Memory(static_cast<std::byte*>(::operator new[](num_bytes, kAlignment))); }

/// Gloo writes to sockets without MSG_NOSIGNAL: for the time of a write, a peer's end is no signal of this thread.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec now = {};
    sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace

struct Link::Ring {
  using Buffer = std::unique_ptr<::gloo::transport::Buffer>;

  Memory received_records;
  Memory received_data;
  Memory sent_records;
  // Declared after the memory that they refer to.
  std::vector<Buffer> receive_record;
  std::vector<Buffer> receive_data;
  std::vector<Buffer> send_record;
  std::vector<Buffer> send_data;  // span all memory: offsets are addresses
};

Link::Link(::gloo::transport::Pair* pair, int rank, int peer, const Tuning& tuning, size_t max_payload,
           LinkEvents* events)
    : peer_(peer),
      tuning_(tuning),
      max_payload_(max_payload),
      record_bytes_((sizeof(FrameHeader) + max_payload + 63) / 64 * 64),
      events_(events),
      ring_(std::make_unique<Ring>()) {
  const size_t records = static_cast<size_t>(tuning.records);
  const size_t slots = static_cast<size_t>(tuning.slots);
  const size_t slot_bytes = static_cast<size_t>(tuning.chunk_bytes);
  ring_->received_records = allocate(records * record_bytes_);
  ring_->received_data = allocate(slots * slot_bytes);
  ring_->sent_records = allocate(records * record_bytes_);
  // The two directions have numbers of their own: the end of a send buffer also makes Gloo forget the receive buffer of
  // its number.
  const int total = tuning.records + tuning.slots;
  const int first_sent = rank < peer ? 0 : total;
  const int first_received = total - first_sent;
  for (int i = 0; i < tuning.records; ++i) {
    const size_t at = static_cast<size_t>(i) * record_bytes_;
    ring_->receive_record.push_back(
        pair->createRecvBuffer(first_received + i, ring_->received_records.get() + at, record_bytes_));
    ring_->send_record.push_back(pair->createSendBuffer(first_sent + i, ring_->sent_records.get() + at, record_bytes_));
  }
  for (int i = 0; i < tuning.slots; ++i) {
    const int slot = tuning.records + i;
    ring_->receive_data.push_back(pair->createRecvBuffer(
        first_received + slot, ring_->received_data.get() + static_cast<size_t>(i) * slot_bytes, slot_bytes));
    ring_->send_data.push_back(
        pair->createSendBuffer(first_sent + slot, nullptr, std::numeric_limits<size_t>::max() / 2));
  }
  expected_.max_payload = max_payload;
  expected_.max_data = slot_bytes;
}

Link::~Link() { stop(); }

void Link::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Link::stop() {
  if (thread_.joinable()) thread_.join();
}

// --- receiving: the link's thread ---

void Link::run() {
  std::string why;
  try {
    while (receive_next()) {
    }
    why = "left the group";
  } catch (const std::exception& e) {
    why = e.what();
  }
  lose();
  events_->link_lost(peer_, why);
}

bool Link::receive_next() {
  const size_t index = expected_.seq % static_cast<uint64_t>(tuning_.records);
  ring_->receive_record[index]->waitRecv();
  const std::byte* record = ring_->received_records.get() + index * record_bytes_;
  {
    std::lock_guard lock(mutex_);
    expected_.sent_records = sent_records_;
    expected_.sent_data = sent_data_;
  }
  const FrameHeader header = check_header({record, record_bytes_}, expected_);
  expected_.last = header;
  ++expected_.seq;

  Frame frame;
  frame.peer = peer_;
  frame.type = static_cast<FrameType>(header.type);
  frame.stream = header.stream;
  frame.channel = header.channel;
  frame.offset = header.offset;
  frame.payload.assign(reinterpret_cast<const char*>(record) + sizeof(header), header.length);
  if (header.data_length > 0) {
    frame.data_index = arrived_data_.load(std::memory_order_relaxed);
    const size_t slot = frame.data_index % static_cast<uint64_t>(tuning_.slots);
    ring_->receive_data[slot]->waitRecv();  // has arrived: data goes before its record
    frame.data = ring_->received_data.get() + slot * static_cast<size_t>(tuning_.chunk_bytes);
    frame.data_bytes = header.data_length;
    arrived_data_.store(frame.data_index + 1, std::memory_order_release);
  }
  arrived_records_.store(expected_.seq, std::memory_order_release);
  acknowledge(header);

  const bool leaves = frame.type == FrameType::kGoodbye;
  if (frame.type == FrameType::kCredit) {
    events_->link_moved(peer_);
  } else {
    events_->frame_arrived(std::move(frame));
  }
  return !leaves;
}

void Link::acknowledge(const FrameHeader& header) {
  acked_data_.store(header.arrived_data, std::memory_order_release);
  std::lock_guard lock(mutex_);
  acked_records_ = header.arrived_records;
  freed_data_ = header.released_data;
  const uint64_t untold = arrived_records_.load(std::memory_order_relaxed) - told_records_;
  if ((header.flags & kWantAck) != 0 || untold >= static_cast<uint64_t>(tuning_.records) / 2) credit_due_ = true;
  flush_outbox();
  if (credit_due_) send_credit();
}

void Link::lose() {
  lost_.store(true, std::memory_order_release);
  std::lock_guard lock(mutex_);
  outbox_.clear();
}

// --- sending ---

bool Link::has_record_room(int reserve) const {
  return sent_records_ - acked_records_ + static_cast<uint64_t>(reserve) < static_cast<uint64_t>(tuning_.records);
}

void Link::send(FrameType type, std::string payload) {
  TANDEM_CHECK(ValueError, payload.size() <= max_payload_, "gloo: ", payload.size(), " bytes in one frame; at most ",
               max_payload_);
  std::lock_guard lock(mutex_);
  if (is_lost()) return;
  const bool urgent = type == FrameType::kPoison;
  if (has_record_room(urgent ? 0 : kReserve) && (urgent || outbox_.empty())) {
    FrameHeader header;
    header.type = static_cast<uint16_t>(type);
    write_record(header, payload);
  } else {
    outbox_.push_back({type, std::move(payload)});
  }
}

void Link::flush_outbox() {
  while (!outbox_.empty() && has_record_room(kReserve)) {
    FrameHeader header;
    header.type = static_cast<uint16_t>(outbox_.front().type);
    write_record(header, outbox_.front().payload);
    outbox_.pop_front();
  }
}

void Link::send_credit() {
  if (is_lost() || !has_record_room(0)) return;  // stays due
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::kCredit);
  write_record(header, {});
}

uint64_t Link::try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream,
                             uint64_t offset, bool want_ack) {
  std::lock_guard lock(mutex_);
  const uint64_t slots = static_cast<uint64_t>(tuning_.slots);
  if (is_lost() || !outbox_.empty() || !has_record_room(kReserve) || sent_data_ - freed_data_ >= slots) return 0;
  try {
    ::gloo::transport::Buffer& buffer = *ring_->send_data[sent_data_ % slots];
    if (sent_data_ >= slots) buffer.waitSend();  // of the frame before in this slot, which has arrived
    const NoPipeSignal guard;
    buffer.send(reinterpret_cast<size_t>(data), static_cast<size_t>(num_bytes));
  } catch (const std::exception&) {
    lost_.store(true, std::memory_order_release);  // the link's thread finds out why
    return 0;
  }
  ++sent_data_;
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::kData);
  header.flags = want_ack ? kWantAck : 0;
  header.stream = stream;
  header.channel = channel;
  header.offset = offset;
  header.data_length = static_cast<uint32_t>(num_bytes);
  write_record(header, {});
  return sent_data_;
}

void Link::write_record(FrameHeader header, const std::string& payload) {
  header.seq = sent_records_;
  header.length = static_cast<uint32_t>(payload.size());
  header.arrived_records = told_records_ = arrived_records_.load(std::memory_order_acquire);
  header.arrived_data = arrived_data_.load(std::memory_order_acquire);
  header.released_data = told_released_ = released_data_;
  credit_due_ = false;
  const size_t index = sent_records_ % static_cast<uint64_t>(tuning_.records);
  try {
    ::gloo::transport::Buffer& buffer = *ring_->send_record[index];
    if (sent_records_ >= static_cast<uint64_t>(tuning_.records)) buffer.waitSend();
    std::byte* record = ring_->sent_records.get() + index * record_bytes_;
    std::memcpy(record, &header, sizeof(header));
    std::memcpy(record + sizeof(header), payload.data(), payload.size());
    const NoPipeSignal guard;
    buffer.send(0, sizeof(header) + payload.size());
  } catch (const std::exception&) {
    lost_.store(true, std::memory_order_release);
  }
  ++sent_records_;
}

void Link::release(uint64_t index) {
  std::lock_guard lock(mutex_);
  released_ahead_ |= uint64_t{1} << (index - released_data_);
  while ((released_ahead_ & 1) != 0) {
    released_ahead_ >>= 1;
    ++released_data_;
  }
  if (released_data_ - told_released_ >= static_cast<uint64_t>(std::max(tuning_.slots / 2, 1))) {
    credit_due_ = true;
    send_credit();
  }
}

bool Link::outbox_empty() {
  std::lock_guard lock(mutex_);
  return outbox_.empty();
}

}  // namespace tandem::inline v0::distributed::gloo
