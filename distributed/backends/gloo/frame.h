// What the ranks of a gloo group send each other. Private to distributed/backends/gloo.
//
// A frame is a record: a header and up to a record's room of payload. A data frame announces bytes that lie in a slot
// already when the record comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/distributed/backends/collective.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

inline constexpr uint32_t kMagic = 0x314c4754;   // "TGL1": protocol 1
inline constexpr size_t kInlineBytes = 8 << 10;  ///< data up to this size travels beside the signature
inline constexpr size_t kShownText = 192;        ///< of names and files
inline constexpr size_t kMaxReason = 2048;

enum class FrameType : uint16_t {
  kCredit = 1,  // nothing but the counters of its header
  kSignature,   // SignatureFrame
  kData,        // bytes of a collective or a message, in a slot
  kOffer,       // MessageFrame: a rank wants to send
  kAnswer,      // AnswerFrame: the receiver wants the data, has it, or disagrees
  kPoison,      // the rank takes part no longer: culprit, reason
  kGoodbye,     // the rank leaves
};

struct FrameHeader {
  uint32_t magic = kMagic;
  uint16_t type = 0;
  uint8_t flags = 0;
  uint8_t stream = 0;        ///< of data: which of the collective's streams
  uint64_t seq = 0;          ///< number of the record on its link, from 0
  uint32_t length = 0;       ///< of the payload in the record
  uint32_t data_length = 0;  ///< of the data in the slot
  // What the sender has seen of the link's other direction.
  uint64_t arrived_records = 0;
  uint64_t arrived_data = 0;   ///< data frames that arrived
  uint64_t released_data = 0;  ///< slots of data that may be written again
  uint64_t channel = 0;        ///< of data: the collective's number, or kMessageBit and the message's
  uint64_t offset = 0;         ///< of data: bytes before it in its stream
};
static_assert(sizeof(FrameHeader) == 64);

inline constexpr uint8_t kWantAck = 1;  ///< flag: the sender waits for news of the arrival
inline constexpr uint64_t kMessageBit = uint64_t{1} << 63;

/// What a receiver knows when a record arrives.
struct Expected {
  uint64_t seq = 0;
  size_t max_payload = 0;     ///< room of a record
  size_t max_data = 0;        ///< of a slot
  uint64_t sent_records = 0;  ///< by this side: nobody can have seen more
  uint64_t sent_data = 0;
  FrameHeader last;  ///< of the frame before: counters never go back
};

/// The header at the beginning of `record`, the whole of which can be read. Throws IoError where it cannot be one.
FrameHeader check_header(std::span<const std::byte> record, const Expected& expected);

/// What a rank of an all_to_all sends to, or expects from, one other.
struct PartFrame {
  int64_t num_elements = 0;
  uint64_t shape_hash = 0;

  bool operator==(const PartFrame&) const = default;
};

/// What one rank passed to a collective.
struct SignatureFrame {
  uint64_t number = 0;  ///< of the collective on its backend, from 1
  int64_t seq = 0;      ///< of the front
  Signature signature;
  ShownShape shape;
  std::string tensors;  ///< Collective::tensors
  std::string name;
  std::string file;
  uint32_t line = 0;
  std::vector<PartFrame> sends;  ///< all_to_all: by rank
  std::vector<PartFrame> expects;
  ShownShape sent;      ///< all_to_all: to the receiver of this frame
  ShownShape expected;  ///< and from it
  std::string data;     ///< what this rank puts in, where it is small
};

/// A message that a rank wants to send.
struct MessageFrame {
  uint64_t id = 0;  ///< of the sender's on this link
  int64_t tag = 0;
  DType dtype = kFloat32;
  int64_t num_elements = 0;
  uint64_t name_hash = 0;
  uint64_t shape_hash = 0;
  ShownShape shape;
  std::string name;
  std::string file;
  uint32_t line = 0;
  std::string data;  ///< all of it, where it is small
};

/// What the receiver says to a message.
struct AnswerFrame {
  enum class Verdict : uint8_t { kSend, kDone, kMismatch };
  uint64_t id = 0;
  Verdict verdict = Verdict::kSend;
  MessageFrame posted;  ///< kMismatch: what the receiver waited for
};

struct PoisonFrame {
  uint64_t finished = 0;  ///< collectives that the rank has completed
  int64_t culprit = -1;
  std::string reason;
};

std::string encode(const SignatureFrame& frame);
std::string encode(const MessageFrame& frame);
std::string encode(const AnswerFrame& frame);
std::string encode(const PoisonFrame& frame);

// Throw IoError where the payload is none.
/// `world_size` limits the lists.
SignatureFrame decode_signature(std::string_view payload, int world_size);
MessageFrame decode_message(std::string_view payload);
AnswerFrame decode_answer(std::string_view payload);
PoisonFrame decode_poison(std::string_view payload);

}}}  // namespace tandem::v0::distributed::gloo
