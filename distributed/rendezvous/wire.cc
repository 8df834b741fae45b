#include <tandem/distributed/rendezvous/wire.h>

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace tandem { inline namespace v0 { namespace distributed::wire {

void check_size(std::string_view key, std::string_view value, std::string_view other) {
  const size_t num_bytes = key.size() + value.size() + other.size();
  TANDEM_CHECK(ValueError, num_bytes <= kMaxBytes, "store: ", "keys and values of one call have ", num_bytes,
               " bytes; the limit is ", kMaxBytes);
}

PayloadWriter& PayloadWriter::number(int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::string_view PayloadReader::take(size_t n) {
  if (n > bytes_.size()) throw IoError("store: a frame is shorter than its contents");
  const std::string_view taken = bytes_.substr(0, n);
  bytes_.remove_prefix(n);
  return taken;
}

int64_t PayloadReader::number() {
  int64_t value = 0;
  std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
  return value;
}

std::string PayloadReader::text() {
  const int64_t length = number();
  if (length < 0) throw IoError("store: a frame contains a string of negative length");
  return std::string(take(static_cast<size_t>(length)));
}

int64_t PayloadReader::count(int64_t size) {
  const int64_t n = number();
  if (n < 0 || n > static_cast<int64_t>(bytes_.size()) / size) {
    throw IoError("store: a frame is shorter than its contents");
  }
  return n;
}

void PayloadReader::finish() const {
  if (!bytes_.empty()) throw IoError("store: a frame is longer than its contents");
}

std::string encode(FrameType type, uint32_t id, std::string_view payload) {
  TANDEM_CHECK(ValueError, payload.size() <= kMaxPayload, "store: a frame has ", payload.size(),
               " bytes; the limit is ", kMaxPayload);
  const FrameHeader header{kMagic, static_cast<uint32_t>(type), id, static_cast<uint32_t>(payload.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(payload);
  return bytes;
}

std::optional<Frame> FrameBuffer::next(uint32_t max_payload) {
  FrameHeader header{};
  if (bytes_.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (header.magic != kMagic) throw IoError("store: received data that is not a frame");
  if (header.length > max_payload) {
    throw IoError(str("store: received a frame of ", header.length, " bytes; at most ", max_payload));
  }
  if (header.type < static_cast<uint32_t>(FrameType::kHello) || header.type > static_cast<uint32_t>(FrameType::kLast)) {
    throw IoError(str("store: received a frame of unknown type ", header.type));
  }
  if (bytes_.size() < sizeof(header) + header.length) return std::nullopt;
  Frame frame{static_cast<FrameType>(header.type), header.id, bytes_.substr(sizeof(header), header.length)};
  bytes_.erase(0, sizeof(header) + header.length);
  return frame;
}

Request read_request(const Frame& frame) {
  Request request{.type = frame.type, .id = frame.id};
  PayloadReader payload(frame.payload);
  switch (frame.type) {
    case FrameType::kSet:
      request.key = payload.text();
      request.value = payload.text();
      break;
    case FrameType::kGet:
    case FrameType::kAdd:
      request.key = payload.text();
      request.number = payload.number();
      break;
    case FrameType::kCancelGet:
    case FrameType::kDeleteKey: request.key = payload.text(); break;
    case FrameType::kCompareSet:
      request.key = payload.text();
      request.expected = payload.text();
      request.value = payload.text();
      break;
    case FrameType::kCheck:
      request.keys.resize(static_cast<size_t>(payload.count(sizeof(int64_t))));
      for (std::string& key : request.keys) key = payload.text();
      break;
    case FrameType::kAnnounceFailure:
      request.number = payload.number();
      request.value = payload.text();
      break;
    case FrameType::kNumKeys:
    case FrameType::kGoodbye: break;
    default: throw IoError(str("store: a rank sent a frame of type ", static_cast<uint32_t>(frame.type)));
  }
  payload.finish();
  return request;
}

bool equal_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // volatile: the loop must not end early
  for (size_t i = 0; i < a.size(); ++i) {
    difference =
        static_cast<unsigned char>(difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

std::string token_from_hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw ValueError("TANDEM_TOKEN: expected 64 hexadecimal digits");
  };
  TANDEM_CHECK(ValueError, text.size() == 2 * kTokenBytes, "TANDEM_TOKEN: expected 64 hexadecimal digits, got ",
               text.size(), " characters");
  std::string token;
  for (size_t i = 0; i < text.size(); i += 2) token += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return token;
}

std::string token_to_hex(std::string_view token) {
  std::string text;
  for (const char c : token) {
    text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string token_from_name(std::string_view name) {
  std::string token;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (int block = 0; token.size() < kTokenBytes; ++block) {
    for (const char c : str(block, ":", name)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    token.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  }
  return token;
}

std::string random_token() {
  std::string token(kTokenBytes, '\0');
  size_t have = 0;
  while (have < token.size()) {
    const ssize_t n = getrandom(token.data() + have, token.size() - have, 0);
    if (n < 0 && errno == EINTR) continue;
    TANDEM_CHECK(IoError, n > 0, "launch: cannot read random bytes for the job's token: ", std::strerror(errno));
    have += static_cast<size_t>(n);
  }
  return token;
}

}}}  // namespace tandem::v0::distributed::wire
