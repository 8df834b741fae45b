#include <tandem/distributed/backends/gloo/link.h>

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

namespace {

constexpr int kReserve = 4;  // records that only acknowledgements may use
constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory allocate(size_t num_bytes) { return Memory(static_cast<std::byte*>(::operator new[](num_bytes, kAlignment))); }

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
  std::vector<Buffer> send_data;  // span the whole address space: an offset is an address
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
  // The two directions use different buffer numbers: when a send buffer is destroyed, Gloo also removes the receive
  // buffer with the same number.
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
  thread_ = start_thread([this] { run(); });
}

void Link::stop() {
  if (thread_.joinable()) thread_.join();
}

// --- receiving: the link's thread ---

void Link::run() {
  try {
    for (;;) receive_next();
  } catch (const std::exception& e) {
    lose(e.what());
  }
  // After an invalid frame the connection is still open in Gloo. This side sends nothing more on it, and Mesh closes
  // it.
  while (!closed_.load(std::memory_order_acquire)) {
    try {
      ring_->receive_record[0]->waitRecv();
    } catch (const std::exception&) {
      closed_.store(true, std::memory_order_release);
    }
  }
}

void Link::receive_next() {
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
    ring_->receive_data[slot]->waitRecv();  // has already arrived: data is sent before its record
    frame.data = ring_->received_data.get() + slot * static_cast<size_t>(tuning_.chunk_bytes);
    frame.data_bytes = header.data_length;
    arrived_data_.store(frame.data_index + 1, std::memory_order_release);
  }
  arrived_records_.store(expected_.seq, std::memory_order_release);
  acknowledge(header);

  switch (frame.type) {
    case FrameType::kCredit: events_->link_moved(peer_); break;
    case FrameType::kGoodbye: lose("left the group", true); break;
    default: events_->frame_arrived(std::move(frame));
  }
}

void Link::acknowledge(const FrameHeader& header) {
  acked_data_.store(header.arrived_data, std::memory_order_release);
  std::lock_guard lock(mutex_);
  acked_records_ = header.arrived_records;
  freed_data_ = header.released_data;
  const uint64_t untold = arrived_records_.load(std::memory_order_relaxed) - reported_records_;
  if ((header.flags & kWantAck) != 0 || untold >= static_cast<uint64_t>(tuning_.records) / 2) credit_due_ = true;
  if (credit_due_ || !queue_.empty()) events_->flush_wanted();
}

void Link::lose(const std::string& why, bool left) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(reported_lost_, true)) return;
    lost_.store(true, std::memory_order_release);
    queue_.clear();
  }
  events_->link_lost(peer_, why, left);
}

// --- sending ---

bool Link::has_record_room(int reserve) const {
  return sent_records_ - acked_records_ + static_cast<uint64_t>(reserve) < static_cast<uint64_t>(tuning_.records);
}

void Link::send(FrameType type, std::string payload) {
  TANDEM_CHECK(ValueError, payload.size() <= max_payload_, "gloo: ", payload.size(), " bytes in one frame; at most ",
               max_payload_);
  Entry entry;
  entry.header.type = static_cast<uint16_t>(type);
  entry.header.flags = type == FrameType::kGoodbye ? kWantAck : 0;
  entry.payload = std::move(payload);
  {
    std::lock_guard lock(mutex_);
    if (is_lost()) return;
    queue_.push_back(std::move(entry));
  }
  events_->flush_wanted();
}

void Link::send_poison(std::string payload) {
  {
    std::lock_guard lock(mutex_);
    // Poison can still be sent to a peer that has sent an invalid frame.
    if (std::exchange(poisoned_, true) || cannot_write_) return;
    std::erase_if(queue_, [](const Entry& entry) { return entry.data != nullptr; });
    Entry entry;
    entry.header.type = static_cast<uint16_t>(FrameType::kPoison);
    entry.header.flags = kWantAck;  // its arrival implies that all data before it has arrived
    entry.payload = std::move(payload);
    queue_.push_back(std::move(entry));
  }
  events_->flush_wanted();
}

bool Link::reads_memory() {
  if (closed_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  return sent_data_ != acked_data_.load(std::memory_order_acquire);
}

uint64_t Link::try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream,
                             uint64_t offset, bool want_ack) {
  Entry entry;
  entry.header.type = static_cast<uint16_t>(FrameType::kData);
  entry.header.flags = want_ack ? kWantAck : 0;
  entry.header.stream = stream;
  entry.header.channel = channel;
  entry.header.offset = offset;
  entry.header.data_length = static_cast<uint32_t>(num_bytes);
  entry.data = data;
  uint64_t index;
  {
    std::lock_guard lock(mutex_);
    if (is_lost() || poisoned_ || queued_data_ - freed_data_ >= static_cast<uint64_t>(tuning_.slots)) return 0;
    index = ++queued_data_;
    // Every quarter of the ring is acknowledged, for all users of the ring together. So no sender waits for the
    // acknowledgement of data for which no acknowledgement was requested.
    if (index % quarter() == 0) entry.header.flags |= kWantAck;
    queue_.push_back(std::move(entry));
  }
  events_->flush_wanted();
  return index;
}

void Link::release(uint64_t index) {
  std::lock_guard lock(mutex_);
  released_ahead_ |= uint64_t{1} << (index - released_data_);
  while ((released_ahead_ & 1) != 0) {
    released_ahead_ >>= 1;
    ++released_data_;
  }
  if (released_data_ - reported_released_ < quarter()) return;
  credit_due_ = true;
  events_->flush_wanted();
}

bool Link::all_acked() {
  std::lock_guard lock(mutex_);
  if (cannot_write_ || closed_.load(std::memory_order_acquire)) return true;
  return queue_.empty() && acked_records_ >= wanted_ack_;
}

bool Link::flush() {
  const size_t largest = largest_write_;
  Entry entry;
  while (next_entry(entry)) {
    write(entry);
    largest_write_ = std::max({largest_write_, entry.payload.size(), size_t{entry.header.data_length}});
  }
  return largest_write_ > largest;
}

/// Takes the next entry to be written, and completes its header.
bool Link::next_entry(Entry& entry) {
  std::lock_guard lock(mutex_);
  if (cannot_write_) return false;
  if (!queue_.empty() && has_record_room(kReserve)) {
    entry = std::move(queue_.front());
    queue_.pop_front();
  } else if (credit_due_ && has_record_room(0)) {
    entry = {};
    entry.header.type = static_cast<uint16_t>(FrameType::kCredit);
  } else {
    return false;
  }
  FrameHeader& header = entry.header;
  header.seq = sent_records_++;
  if (entry.data != nullptr) ++sent_data_;
  if ((header.flags & kWantAck) != 0) wanted_ack_ = sent_records_;
  header.length = static_cast<uint32_t>(entry.payload.size());
  header.arrived_records = reported_records_ = arrived_records_.load(std::memory_order_acquire);
  header.arrived_data = arrived_data_.load(std::memory_order_acquire);
  header.released_data = reported_released_ = released_data_;
  credit_due_ = false;
  return true;
}

void Link::write(const Entry& entry) {
  const uint64_t records = static_cast<uint64_t>(tuning_.records);
  const uint64_t slots = static_cast<uint64_t>(tuning_.slots);
  try {
    if (entry.data != nullptr) {
      ::gloo::transport::Buffer& buffer = *ring_->send_data[written_data_ % slots];
      if (written_data_ >= slots) buffer.waitSend();  // the previous frame in this slot, which has arrived
      ++written_data_;
      buffer.send(reinterpret_cast<size_t>(entry.data), entry.header.data_length);
    }
    ::gloo::transport::Buffer& buffer = *ring_->send_record[entry.header.seq % records];
    if (entry.header.seq >= records) buffer.waitSend();
    std::byte* record = ring_->sent_records.get() + entry.header.seq % records * record_bytes_;
    std::memcpy(record, &entry.header, sizeof(entry.header));
    std::memcpy(record + sizeof(entry.header), entry.payload.data(), entry.payload.size());
    buffer.send(0, sizeof(entry.header) + entry.payload.size());
  } catch (const std::exception&) {
    lost_.store(true, std::memory_order_release);  // the link's thread determines the reason
    std::lock_guard lock(mutex_);
    cannot_write_ = true;
  }
}

}}}  // namespace tandem::v0::distributed::gloo
