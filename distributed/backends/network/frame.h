// Wire format between the ranks of a group over the network. Private to distributed/backends/network.
//
// A frame is a header and a payload of limited size, or a header and data of a collective or a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/distributed/backends/collective.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

inline constexpr uint32_t kMagic = 0x334c4754;   // "TGL3": protocol 3
inline constexpr size_t kInlineBytes = 8 << 10;  ///< data up to this size is sent inside the signature
inline constexpr size_t kCallInfoText = 192;     ///< maximum bytes of names and file names

enum class FrameType : uint16_t {
  kSignature = 1,  // SignatureFrame
  kData,           // data of a collective or a message
  kOffer,          // MessageFrame: a rank wants to send
  kAnswer,         // AnswerFrame: the receiver requests the data, has received it, needs none, or found a mismatch
  kGoodbye,        // the rank sends nothing more: it leaves the group, or the group has failed
};

struct FrameHeader {
  uint32_t magic = kMagic;
  uint16_t type = 0;
  uint8_t stream = 0;  ///< kData: index of the collective's stream
  uint8_t zero = 0;
  uint64_t seq = 0;          ///< number of the frame in its direction of the connection, from 0
  uint32_t length = 0;       ///< bytes of payload
  uint32_t data_length = 0;  ///< bytes of data
  uint64_t channel = 0;      ///< kData: number of the collective, or kMessageBit | id of the message
  uint64_t offset = 0;       ///< kData: position of the first byte in its stream
};
static_assert(sizeof(FrameHeader) == 40);

inline constexpr uint64_t kMessageBit = uint64_t{1} << 63;

/// State of the receiver against which an arriving header is checked.
struct Expected {
  uint64_t seq = 0;
  size_t max_payload = 0;
  size_t max_data = 0;
};

/// Returns the header at the beginning of `bytes`. Throws IoError if it is invalid.
FrameHeader check_header(std::span<const std::byte> bytes, const Expected& expected);

/// A part of an all_to_all that a rank sends to, or expects from, one other rank.
struct PartFrame {
  int64_t num_elements = 0;
  uint64_t shape_hash = 0;

  bool operator==(const PartFrame&) const = default;
};

/// The arguments that one rank passed to a collective.
struct SignatureFrame {
  uint64_t number = 0;  ///< number of the collective on its backend, from 1
  int64_t seq = 0;      ///< number of the collective in the ProcessGroup
  Signature signature;
  ShownShape shape;
  std::string tensors;  ///< Collective::tensors
  std::string name;
  std::string file;
  uint32_t line = 0;
  std::vector<PartFrame> sends;  ///< all_to_all: by rank
  std::vector<PartFrame> expects;
  ShownShape sent;      ///< all_to_all: shape sent to the receiver of this frame
  ShownShape expected;  ///< all_to_all: shape expected from it
  std::string data;     ///< input of this rank, if it is small
};

/// Offer of a message that a rank wants to send.
struct MessageFrame : MessageSignature {
  uint64_t id = 0;   ///< number of the message among the sender's on this link
  uint64_t gpu = 0;  ///< P2pRequest::gpu
  ShownShape shape;
  std::string name;
  std::string file;
  uint32_t line = 0;
  std::string data;  ///< the whole message, if it is small and in host memory
};

/// The receiver's answer to the offer of a message.
struct AnswerFrame {
  /// kDirect: the message is direct, and needs no data.
  enum class Kind : uint8_t { kSend, kDone, kDirect, kMismatch };
  uint64_t id = 0;
  Kind kind = Kind::kSend;
  MessageFrame posted;  ///< kMismatch: arguments of the receiver
};

std::string encode(const SignatureFrame& frame);
std::string encode(const MessageFrame& frame);
std::string encode(const AnswerFrame& frame);

// Throw IoError if the payload is invalid.
/// `world_size` is the maximum length of the lists.
SignatureFrame decode_signature(std::string_view payload, int world_size);
MessageFrame decode_message(std::string_view payload);
AnswerFrame decode_answer(std::string_view payload);

}}}  // namespace tandem::v0::distributed::network
