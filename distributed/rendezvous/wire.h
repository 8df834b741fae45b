// Wire format between ranks and the store server: frames of a fixed header and `length` bytes. Private to distributed/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed::wire {

inline constexpr uint32_t kMagic = 0x32445454;  // "TTD2": protocol 2
inline constexpr size_t kTokenBytes = 32;
inline constexpr uint32_t kMaxBytes = 16u << 20;         // of a call's key and values together
inline constexpr uint32_t kMaxPayload = kMaxBytes + 64;  // of a rank's frame: the above, and the lengths
inline constexpr uint32_t kMaxHelloPayload = 256;        // of a connection that has not sent the token yet

enum class FrameType : uint8_t {
  kHello = 1,        // rank -> host: token, rank, world size. Must be the first
  kWelcome,          // host -> rank: accepted
  kRejected,         // host -> rank: correct token, but the rank cannot join; the reason
  kSet,              // key, value
  kGet,              // key, whether to wait for it
  kCancelGet,        // key; cancels the kGet with the same id; no reply
  kAdd,              // key, delta
  kAnnounceFailure,  // rank, reason
  kGoodbye,          // the rank leaves
  kReply,            // host -> rank, for the request `id`: Status, text
  kRankEnded,        // host -> rank: rank, RankEnd, reason
  kCompareSet,       // key, expected, desired
  kDeleteKey,        // key
  kCheck,            // number of keys, keys
  kNumKeys,          // no fields
  kNotYet,           // host -> rank, instead of kWelcome: try again; the reason
  kLast = kNotYet,
};

enum class Status : uint8_t { kOk, kMissing, kError };

struct FrameHeader {
  uint32_t magic;
  uint32_t type;
  uint32_t id;
  uint32_t length;
};
static_assert(sizeof(FrameHeader) == 16);

struct Frame {
  FrameType type = FrameType::kHello;
  uint32_t id = 0;
  std::string payload;
};

/// Throws ValueError if a call's key and values are longer than a store accepts.
TANDEM_API void check_size(std::string_view key, std::string_view value, std::string_view other = {});

/// Builds a payload. All hosts of a job are little-endian.
class PayloadWriter {
 public:
  PayloadWriter& number(int64_t value);
  PayloadWriter& text(std::string_view value);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads a payload. Throws IoError if it is too short.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
  int64_t number();
  std::string text();
  /// A count of elements of at least `size` bytes each.
  int64_t count(int64_t size);
  /// Throws IoError if bytes are left.
  void finish() const;

 private:
  std::string_view take(size_t n);
  std::string_view bytes_;
};

TANDEM_API std::string encode(FrameType type, uint32_t id, std::string_view payload);

/// Collects received bytes and splits them into frames.
class FrameBuffer {
 public:
  void append(const char* data, size_t n) { bytes_.append(data, n); }
  size_t size() const { return bytes_.size(); }
  /// The next complete frame, if there is one. Throws IoError for a wrong magic number, an unknown type or a length
  /// beyond `max_payload`, as soon as the header is complete.
  std::optional<Frame> next(uint32_t max_payload);

 private:
  std::string bytes_;
};

/// A request of a rank. Each type uses some of the fields.
struct Request {
  FrameType type = FrameType::kHello;
  uint32_t id = 0;
  std::string key = {};
  std::string value = {};  ///< kSet, kCompareSet: to set; kAnnounceFailure: the reason
  std::string expected = {};
  std::vector<std::string> keys = {};
  int64_t number = 0;  ///< kGet: whether to wait; kAdd: delta; kAnnounceFailure: rank
};

/// Throws IoError if ranks do not send this type of frame after kHello, or if the payload is invalid.
TANDEM_API Request read_request(const Frame& frame);

/// Whether the strings are equal, in a time that depends only on their lengths.
TANDEM_API bool equal_constant_time(std::string_view a, std::string_view b);

/// Converts 64 hexadecimal digits to 32 bytes. Throws ValueError for any other text, without showing it.
TANDEM_API std::string token_from_hex(std::string_view text);
TANDEM_API std::string token_to_hex(std::string_view token);
/// A token for ranks that share only a name. It separates jobs but is not secret.
TANDEM_API std::string token_from_name(std::string_view name);
/// 32 bytes from the kernel's random generator.
TANDEM_API std::string random_token();

}}}  // namespace tandem::v0::distributed::wire
