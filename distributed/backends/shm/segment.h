// The memory that the ranks of one host share. Private to distributed/backends/shm.
//
// Each rank owns one segment. Only the owner writes it; peers map it read-only. A segment contains a header
// (signatures, counters), slots for small data, rings for large data, and the channels of messages to each
// other rank. All ranks write the doorbell pages, which contain only wake-up counts.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

inline constexpr size_t kLine = 64;    ///< bytes of a cache line
inline constexpr int kNumBuffers = 2;  ///< a signature slot or data slot is reused two collectives later
inline constexpr size_t kCallInfoText = 192;

/// The signature of one collective on one rank. One cache line: a peer that has waited for `seq` then has the signature
/// too.
struct alignas(kLine) SignatureSlot {
  std::atomic<int64_t> seq{0};  ///< stored last
  Signature signature;
};
static_assert(sizeof(SignatureSlot) == kLine);

/// Fields of a collective or message that only error messages need.
struct CallInfo {
  ShownShape shape;
  uint32_t line = 0;
  uint32_t tensors_bytes = 0;  ///< length of the text in SegmentHeader::tensors
  char name[kCallInfoText] = {};
  char file[kCallInfoText] = {};
};

/// Copies the text and a terminating zero. Truncates the text to room - 1 bytes.
void copy_text(char* out, std::string_view text, size_t room);
void write_call_info(CallInfo& call_info, const Shape& shape, std::string_view name, const std::source_location& where);

/// A part of an all_to_all that a rank sends to, or expects from, one other rank.
struct PostedPart {
  int64_t num_elements;
  uint64_t shape_hash;
  ShownShape shape;
};

/// Progress of the rank in its collective. Each counter holds stamp(seq, completed rounds), so it only grows.
struct alignas(kLine) Counters {
  std::atomic<int64_t> staged{0};    ///< two-shot: rounds of input in the ring
  std::atomic<int64_t> produced{0};  ///< rounds of results, or of a sender's data, in the ring
  std::atomic<int64_t> consumed{0};  ///< rounds of peers' data or results taken out
};

inline constexpr int64_t stamp(int64_t seq, int64_t rounds) { return (seq << 24) | rounds; }
inline constexpr int64_t kMaxRounds = (int64_t{1} << 24) - 1;

/// The collective that the rank started last. Peers may read it at any time; they read again if it changed meanwhile.
struct alignas(kLine) LastCollective {
  std::atomic<int64_t> version{0};  ///< odd while the other fields change
  std::atomic<int64_t> seq{0};
  std::atomic<int64_t> ns{0};        ///< start time on CLOCK_MONOTONIC
  std::atomic<uint64_t> what[13]{};  ///< bytes: the kind, the beginning of the name, 0

  /// `same_text`: kind and name are equal to those of the previous collective.
  void write(const Collective& collective, bool same_text, int64_t now_ns);
  struct Seen {
    int64_t seq;
    int64_t ns;
    std::string what;
  };
  Seen read() const;
};

struct SegmentHeader {
  SignatureSlot signatures[kNumBuffers];
  Counters counters;
  alignas(kLine) std::atomic<uint32_t> sleepers{0};  ///< threads of the rank that wait for its doorbell
  std::atomic<int64_t> last_sleep_ns{0};             ///< when one of them last began, on CLOCK_MONOTONIC
  alignas(kLine) std::atomic<int64_t> finished{0};   ///< number of completed collectives
  LastCollective last_collective;
  CallInfo call_info[kNumBuffers];
  char tensors[kNumBuffers][kMaxShownTensors] = {};  ///< Collective::tensors of a list; no terminating zero
  alignas(kLine) std::atomic<bool> has_left{false};  ///< writes nothing more
  cpu_set_t cores = {};                              ///< the rank's affinity mask when it joined
  uint64_t pid_namespace = 0;                        ///< inode; 0: not known
  int32_t pid = 0;
};

// Messages. Every ordered pair of ranks has a Channel in the sender's segment and an Inbox in the receiver's segment.
// Most pairs are never used: their pages are not touched before their first use, and all zeros is their initial state.

inline constexpr int kMaxAnnounced = 128;  ///< messages of one pair that wait for a receive or for their data

/// A message, as announced to its receiver.
struct alignas(kLine) Announcement : MessageSignature {
  int64_t number;  ///< number of the message in its pair, from 1
  uint64_t gpu;    ///< P2pRequest::gpu; if it is not 0, no data is stored with the announcement
  CallInfo call_info;
};

/// A piece of a message's data in the ring of its pair.
struct Piece {
  int64_t num_bytes;
  int32_t entry;  ///< index of its Announcement
};

struct Channel {
  alignas(kLine) std::atomic<int64_t> announced;  ///< number of messages
  alignas(kLine) std::atomic<int64_t> sent;       ///< number of pieces put into the ring
  alignas(kLine) int32_t order[kMaxAnnounced];    ///< entries of messages 1, 2, ... 1 + kMaxAnnounced, ...
  Announcement entries[kMaxAnnounced];
  // Followed by Tuning::pieces Pieces, the data of small messages by entry, and the ring.
};

struct Inbox {
  alignas(kLine) std::atomic<int64_t> taken;  ///< number of pieces taken out of the ring
  /// The answer to the message that was announced last in each entry.
  alignas(kLine) std::atomic<int64_t> answers[kMaxAnnounced];
  Announcement refusing;  ///< the posted receive that differs from a message
};

/// The receiver's answer to an announced message.
enum class Reply : uint8_t {
  kAccepted,  ///< the receiver has taken the data, or waits for it
  kDirect,    ///< the message is direct
  kRefused,   ///< it differs from the posted receive
};

inline constexpr int64_t answer(int64_t number, Reply reply) { return number * 4 + static_cast<int64_t>(reply); }

/// Sizes that all ranks of a group must agree on.
struct Tuning {
  int64_t slot_bytes = 32 << 10;     ///< data up to this size is sent through the slots
  int64_t chunk_bytes = 256 << 10;   ///< of a tensor in a round of a ring; a multiple of 64
  int64_t one_shot_bytes = 1 << 20;  ///< two ranks exchange whole tensors up to this size (one-shot), else slices
  /// Up to this size an all_reduce always writes its data into the rings with non-temporal stores; other collectives do
  /// up to twice this size.
  int64_t streamed_bytes = 256 << 10;
  int64_t trial_bytes = 256 << 20;  ///< bytes of larger collectives between two trials of cached stores
  int slots = 4;                    ///< rounds that a ring holds
  int64_t small_bytes = 4 << 10;    ///< messages up to this size are stored with their announcement; a multiple of 64
  int64_t piece_bytes = 128 << 10;  ///< of a message, in the ring of its pair; a multiple of 64
  int pieces = 4;                   ///< pieces that the ring of a pair holds
};

/// Offsets in a segment.
struct Layout {
  explicit Layout(int world_size, const Tuning& tuning);
  size_t parts;    ///< kNumBuffers tables of all_to_all: PostedPart for each receiving rank, then for each sending rank
  size_t slots;    ///< kNumBuffers slots of tuning.slot_bytes
  size_t staging;  ///< kNumBuffers rings of inputs
  size_t results;  ///< ring of results, or of a sender's data
  size_t channels;  ///< one for each receiver. Only the memory before them is always used.
  size_t inboxes;   ///< one for each sender
  size_t total;
  size_t ring_bytes;     ///< of one ring
  size_t parts_bytes;    ///< of one table
  size_t channel_bytes;  ///< of one channel with its data
  size_t pieces;         ///< within a channel: the Pieces of the ring
  size_t small;          ///< within a channel: data of small messages, by entry
  size_t ring;           ///< within a channel: the data of the ring
};

struct alignas(kLine) Doorbell {
  std::atomic<uint32_t> count{0};
};

/// The segments of all ranks as mapped into this process. Unmapped when the last reference is released.
struct Mapping {
  Mapping(size_t world_size, size_t bytes) : segments(world_size), segment_bytes(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::vector<std::byte*> segments;  ///< by rank
  std::byte* doorbells = nullptr;    ///< one page for each rank
  const size_t segment_bytes;

  SegmentHeader& header(int rank) const {
    return *reinterpret_cast<SegmentHeader*>(segments[static_cast<size_t>(rank)]);
  }
  Doorbell& doorbell(int rank) const;
};

/// Anonymous memory of that size (memfd), to be shared between processes. Throws CommError.
FileDescriptor create_shared_file(const char* name, size_t num_bytes);
/// Prevents later writable mappings.
void seal_writes(const FileDescriptor& file);
/// Maps `num_bytes` of `fd`, or private memory if fd is -1. Throws CommError.
std::byte* map_memory(int fd, size_t num_bytes, bool writable);
size_t page_bytes();

}}}  // namespace tandem::v0::distributed::shm
