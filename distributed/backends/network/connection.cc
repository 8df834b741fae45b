#include <tandem/distributed/backends/network/connection.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

constexpr uint64_t kMaxQueuedData = 4;  // data frames that wait for the socket
constexpr int kMaxReceived = 4;         // frames of data that one call receives while the peer is connected

std::string reason_of(int error) {
  switch (error) {
    case ECONNRESET:
    case EPIPE: return "died (its connection closed)";
    case ETIMEDOUT:
    case EHOSTUNREACH: return "cannot be reached (its connection timed out)";
    default: return "cannot be reached (its connection failed)";
  }
}

/// Calls sendmsg or recvmsg; returns -1 with errno EAGAIN if the call must be repeated later.
template <class Call>
ssize_t transfer(const Call& call, int fd, iovec* parts, size_t num_parts, int flags) {
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = num_parts;
  ssize_t n = 0;
  do {
    n = call(fd, &message, flags | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

Connection::Connection(FileDescriptor socket, int peer, const Tuning& tuning, size_t max_payload)
    : socket_(std::move(socket)), peer_(peer) {
  expected_.max_payload = max_payload;
  expected_.max_data = static_cast<size_t>(tuning.chunk_bytes);
  tune_connection(socket_.get());
  // Frames wait behind the data in this buffer, and what waits leaves the caches. With a smaller one, the rest of a
  // frame would wait for the peer's delayed acknowledgements.
  const int size = static_cast<int>(std::clamp<int64_t>(tuning.chunk_bytes, 64 << 10, 256 << 10));
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

// --- sending ---

/// Call it, and write(), with send_mutex_.
void Connection::enqueue(Entry entry, FrameHeader header, std::string_view payload) {
  header.length = static_cast<uint32_t>(payload.size());
  entry.bytes.reserve(sizeof(header) + payload.size());
  entry.bytes.append(reinterpret_cast<const char*>(&header), sizeof(header)).append(payload);
  queue_.push_back(std::move(entry));
  if (queue_.size() == 1) write();  // otherwise the socket is full
}

void Connection::send(FrameType type, std::string payload) {
  TANDEM_CHECK(ValueError, payload.size() <= expected_.max_payload, "gloo: ", payload.size(),
               " bytes in one frame; at most ", expected_.max_payload);
  std::lock_guard lock(send_mutex_);
  if (!cannot_write_ && !is_cancelled_) enqueue({}, {.type = static_cast<uint16_t>(type)}, payload);
}

uint64_t Connection::try_send_data(const std::byte* data, int64_t num_bytes, uint64_t channel, uint8_t stream,
                                   uint64_t offset) {
  const FrameHeader header = {.type = static_cast<uint16_t>(FrameType::kData),
                              .stream = stream,
                              .data_length = static_cast<uint32_t>(num_bytes),
                              .channel = channel,
                              .offset = offset};
  std::lock_guard lock(send_mutex_);
  if (cannot_write_ || is_cancelled_ || queued_data_ - sent_data() >= kMaxQueuedData) return 0;
  ++queued_data_;
  enqueue({.data = data, .num_data = static_cast<size_t>(num_bytes)}, header, {});
  return queued_data_;
}

void Connection::cancel() {
  drops_data_ = true;
  std::lock_guard lock(send_mutex_);
  if (std::exchange(is_cancelled_, true) || cannot_write_) return;
  if (!queue_.empty() && queue_.front().sent > 0) {  // the frame that is being sent needs the rest of its data
    Entry& first = queue_.front();
    if (first.num_data > 0) first.bytes.append(reinterpret_cast<const char*>(first.data), first.num_data);
    first.data = nullptr;
    first.num_data = 0;
  }
  std::erase_if(queue_, [](const Entry& entry) { return entry.data != nullptr; });
  enqueue({}, {.type = static_cast<uint16_t>(FrameType::kGoodbye)}, {});
}

bool Connection::flush() {
  std::lock_guard lock(send_mutex_);
  return write();
}

bool Connection::write() {
  bool moved = false;
  while (!queue_.empty()) {
    Entry& entry = queue_.front();
    if (entry.sent == 0) std::memcpy(entry.bytes.data() + offsetof(FrameHeader, seq), &num_sent_, sizeof(num_sent_));
    const size_t head = std::min(entry.sent, entry.bytes.size());
    const size_t data = entry.sent - head;
    iovec parts[] = {{entry.bytes.data() + head, entry.bytes.size() - head},
                     {const_cast<std::byte*>(entry.data) + data, entry.num_data - data}};
    const ssize_t n = transfer(sendmsg, socket_.get(), parts, entry.num_data > 0 ? 2 : 1, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN) return moved;
      cannot_write_ = true;
      expect_end();  // receive() finds the reason, perhaps behind data that can no longer be requested
      queue_.clear();
      return true;
    }
    entry.sent += static_cast<size_t>(n);
    if (entry.sent < entry.bytes.size() + entry.num_data) continue;
    if (entry.num_data > 0) {
      sent_data_.fetch_add(1, std::memory_order_release);
      moved = true;
    }
    queue_.pop_front();
    ++num_sent_;
  }
  return moved;
}

bool Connection::is_unsent() {
  std::lock_guard lock(send_mutex_);
  return !queue_.empty();
}

bool Connection::is_delivered() {
  std::lock_guard lock(send_mutex_);
  write();
  pollfd closed = {socket_.get(), 0, 0};
  return cannot_write_ || (queue_.empty() && distributed::is_delivered(socket_.get())) || poll(&closed, 1, 0) > 0;
}

// --- receiving ---

void Connection::post(uint64_t channel, uint8_t stream, uint64_t offset, std::byte* memory, int64_t num_bytes) {
  std::lock_guard lock(post_mutex_);
  posted_.push_back({channel, stream, offset, memory, static_cast<uint64_t>(num_bytes)});
}

void Connection::receive(std::vector<Frame>& frames) {
  int received = 0;
  try {
    take_early(frames);
    while (ended_.empty() && (received < kMaxReceived || may_have_ended_)) {
      if (!in_frame_ && staged_end_ - staged_begin_ >= sizeof(FrameHeader) && !begin_frame()) return;
      if (in_frame_) {
        const size_t n = std::min(body_left_, staged_end_ - staged_begin_);
        if (n > 0) std::memcpy(body_, staged_ + staged_begin_, n);
        staged_begin_ += n;
        body_ += n;
        body_left_ -= n;
        if (body_left_ == 0) {
          received += frame_.data_bytes > 0 && !drops_data_;
          finish_frame(frames);
          continue;
        }
      }
      if (!read()) return;
    }
  } catch (const IoError& e) {
    ended_ = e.what();
  }
}

/// Takes the next header. Returns false if there is no memory for its data.
bool Connection::begin_frame() {
  const FrameHeader header = check_header({staged_ + staged_begin_, sizeof(FrameHeader)}, expected_);
  frame_ = {.peer = peer_,
            .type = static_cast<FrameType>(header.type),
            .stream = header.stream,
            .channel = header.channel,
            .offset = header.offset,
            .data_bytes = header.data_length};
  body_left_ = header.length + header.data_length;  // one of them is 0
  const bool needs_memory = frame_.data_bytes > 0 && !drops_data_;
  body_ = needs_memory && early_.empty() ? find_memory(frame_) : nullptr;
  if (body_ == nullptr && needs_memory && !may_have_ended_) return false;
  if (body_ == nullptr) receive_into_payload(body_left_);
  staged_begin_ += sizeof(FrameHeader);
  ++expected_.seq;
  in_frame_ = true;
  return true;
}

/// Takes posted memory for the data of the frame; null if there is none.
std::byte* Connection::find_memory(const Frame& frame) {
  { const std::lock_guard lock(send_mutex_); }  // results may replace inputs that another thread has just sent
  std::lock_guard lock(post_mutex_);
  const auto place = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& p) {
    return p.channel == frame.channel && p.stream == frame.stream;
  });
  if (place == posted_.end()) return nullptr;
  const auto num_bytes = static_cast<uint64_t>(frame.data_bytes);
  if (frame.offset != place->offset || num_bytes > place->num_bytes) throw IoError("gloo: received unexpected data");
  std::byte* const memory = std::exchange(place->memory, place->memory + num_bytes);
  place->offset += num_bytes;
  place->num_bytes -= num_bytes;
  if (place->num_bytes == 0) posted_.erase(place);
  return memory;
}

void Connection::receive_into_payload(size_t num_bytes) {
  frame_.payload.resize(num_bytes);
  body_ = reinterpret_cast<std::byte*>(frame_.payload.data());
}

void Connection::finish_frame(std::vector<Frame>& frames) {
  in_frame_ = false;
  if (frame_.type == FrameType::kGoodbye) {
    has_left_ = true;
    ended_ = "left the group";
    return;
  }
  if (frame_.data_bytes == 0) return frames.push_back(std::move(frame_));
  if (drops_data_) return;
  if (frame_.payload.empty()) return frames.push_back(std::move(frame_));
  std::lock_guard lock(post_mutex_);
  early_.push_back(std::move(frame_));
}

int64_t Connection::early_bytes(uint64_t channel, uint8_t stream) {
  std::lock_guard lock(post_mutex_);
  int64_t result = 0;
  for (const Frame& frame : early_) {
    if (frame.channel == channel && frame.stream == stream) result += frame.data_bytes;
  }
  return result;
}

/// Moves early data to memory that has been posted since.
void Connection::take_early(std::vector<Frame>& frames) {
  while (!early_.empty() && !drops_data_) {
    Frame& frame = early_.front();
    std::byte* const memory = find_memory(frame);
    if (memory == nullptr) return;
    std::memcpy(memory, frame.payload.data(), frame.payload.size());
    frame.payload.clear();
    std::lock_guard lock(post_mutex_);
    frames.push_back(std::move(frame));
    early_.pop_front();
  }
}

/// Reads the rest of the frame, and what follows it. Returns false if there is nothing to read.
bool Connection::read() {
  if (!readable_) return false;
  std::memmove(staged_, staged_ + staged_begin_, staged_end_ - staged_begin_);
  staged_end_ -= std::exchange(staged_begin_, 0);
  const size_t body = in_frame_ ? body_left_ : 0;
  if (body > 0 && drops_data_ && frame_.payload.empty()) receive_into_payload(body);  // cancelled in this frame
  iovec parts[] = {{body_, body}, {staged_ + staged_end_, kStaged - staged_end_}};
  const size_t first = body > 0 ? 0 : 1;
  const ssize_t n = transfer(recvmsg, socket_.get(), parts + first, 2 - first, 0);
  if (n <= 0) {
    readable_ = false;
    if (n < 0 && errno == EAGAIN) return false;
    ended_ = reason_of(is_silent_ ? ETIMEDOUT : n == 0 ? ECONNRESET : errno);
    return false;
  }
  const auto num_read = static_cast<size_t>(n);
  // A short read means that the socket is empty; a new event follows, unless it is the last one.
  readable_ = may_have_ended_ || num_read == body + kStaged - staged_end_;
  const size_t num_body = std::min(num_read, body);
  body_ += num_body;
  body_left_ -= num_body;
  staged_end_ += num_read - num_body;
  return true;
}

void Connection::give_up() {
  is_silent_ = true;
  shutdown(socket_.get(), SHUT_RDWR);
}

}}}  // namespace tandem::v0::distributed::network
