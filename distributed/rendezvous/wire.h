// What ranks and the store's host send each other: frames of a fixed header and `length` bytes. Private to
// distributed/.
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
inline constexpr uint32_t kMaxPayload = kMaxBytes + 64;  // of a rank: these, and their lengths
inline constexpr uint32_t kMaxHelloPayload = 256;        // of somebody who has not shown the token yet

enum class FrameType : uint8_t {
  kHello = 1,        // rank -> host: token, rank, world size. Must be the first
  kWelcome,          // host -> rank: accepted
  kRejected,         // host -> rank: knows the token but does not fit; the reason
  kSet,              // key, value
  kGet,              // key, whether to wait for it
  kCancelGet,        // of the request `id`; no reply
  kAdd,              // key, delta
  kAnnounceFailure,  // rank, reason
  kGoodbye,          // the rank leaves
  kReply,            // host -> rank: to the request `id`: Status, text
  kRankEnded,        // host -> rank: rank, RankEnd, reason
  kCompareSet,       // key, expected, desired
  kDeleteKey,        // key
  kCheck,            // number of keys, keys
  kNumKeys,          // nothing
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

/// Throws ValueError where a call's key and values are longer than a store takes.
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

/// Reads a payload; throws IoError where it is too short.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
  int64_t number();
  std::string text();
  /// A number of things, of at least `size` bytes each.
  int64_t count(int64_t size);
  /// Throws IoError if something is left.
  void finish() const;

 private:
  std::string_view take(size_t n);
  std::string_view bytes_;
};

TANDEM_API std::string encode(FrameType type, uint32_t id, std::string_view payload);

/// Collects received bytes and cuts them into frames.
class FrameBuffer {
 public:
  void append(const char* data, size_t n) { bytes_.append(data, n); }
  size_t size() const { return bytes_.size(); }
  /// The next whole frame. Throws IoError at a wrong magic number or a length beyond `max_payload`, as soon as the
  /// header is there.
  std::optional<Frame> next(uint32_t max_payload);

 private:
  std::string bytes_;
};

/// What a rank asks, or says: the members that its kind has.
struct Request {
  FrameType type = FrameType::kHello;
  uint32_t id = 0;
  std::string key = {};
  std::string value = {};  ///< kSet, kCompareSet: to set; kAnnounceFailure: the reason
  std::string expected = {};
  std::vector<std::string> keys = {};
  int64_t number = 0;  ///< kGet: whether to wait; kAdd: delta; kAnnounceFailure: rank
};

/// Throws IoError where the frame is of a kind that ranks do not send after kHello, or does not hold what it should.
TANDEM_API Request read_request(const Frame& frame);

/// Whether the strings are equal, in a time that depends on their lengths alone.
TANDEM_API bool equal_constant_time(std::string_view a, std::string_view b);

/// `text`, 64 hexadecimal digits, as 32 bytes. Throws ValueError for anything else, without showing it.
TANDEM_API std::string token_from_hex(std::string_view text);
TANDEM_API std::string token_to_hex(std::string_view token);
/// A token for those who share nothing but a name: it keeps jobs apart and is no secret.
TANDEM_API std::string token_from_name(std::string_view name);
/// 32 bytes of the kernel's random generator.
TANDEM_API std::string random_token();

}}}  // namespace tandem::v0::distributed::wire
