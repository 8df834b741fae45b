// What the race check remembers of four bytes of memory.
//
// An access is a 64-bit record.  Its serial number says when: one counter runs over all launches, blocks and intervals between
// barriers, so "an earlier launch", "another block of this launch" and "an earlier interval of this block" are comparisons with
// the numbers at which launch, block and interval began.  A kernel ends at its first race, so all that a cell holds is ordered,
// and little is enough to find the next race: the last plain write, one access of another block since then, and two of the
// running interval, of two warps if there were two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cuda_emulation {

inline constexpr size_t kBytesOfCell = 4;

enum AccessKind : uint64_t { kPlainWrite = 0, kPlainRead = 1, kAtomic = 2 };  // a record of a read may become 3: both

struct AccessRecord {
  static uint64_t make(uint32_t serial, uint32_t time, uint32_t thread, uint32_t mask, uint64_t kind) {
    return static_cast<uint64_t>(serial) << 32 | static_cast<uint64_t>(time & 0xFFFF) << 16 | thread << 6 | mask << 2 |
           kind;
  }
  static uint32_t serial(uint64_t r) { return static_cast<uint32_t>(r >> 32); }
  static uint32_t time(uint64_t r) {
    return static_cast<uint32_t>(r >> 16) & 0xFFFF;
  }  // of the warp: synchronisations so far
  static uint32_t thread(uint64_t r) { return static_cast<uint32_t>(r >> 6) & 0x3FF; }
  static uint32_t mask(uint64_t r) { return static_cast<uint32_t>(r >> 2) & 0xF; }
  static uint64_t kind(uint64_t r) { return r & 3; }
};

struct RaceCell {
  uint64_t write;  // last plain write; a split cell has kind 3 here
  uint64_t other;  // since then, by another block or in an earlier interval; of a split cell: where its bytes are
  uint64_t first;  // since then, in the running interval
  uint64_t second;
};

/// The cells of single bytes, for cells whose accesses differ in the bytes they touch.
struct SplitCell {
  RaceCell bytes[4];
};

/// Who accesses, and when.
struct Accessor {
  uint32_t serial;       // of the running interval
  uint32_t block_first;  // serial at which the block began
  uint32_t time;         // of the thread's warp
  uint32_t thread;       // in the block
};

/// Answers whether lanes a and b of a warp passed a __syncwarp together at or after `time`.
class WarpOrder {
 public:
  virtual ~WarpOrder() = default;
  virtual bool synchronised_since(uint32_t warp, uint32_t lane_a, uint32_t lane_b, uint32_t time) const = 0;
};

struct Race {
  uint64_t earlier;
};

/// One access to bytes of a cell; `scope_first` is the serial from which on records count.  Returns the earlier access it races with.
/// `initialised`, if asked for, is whether a write of these bytes was seen.
std::optional<Race> touch_cell(RaceCell& cell, const Accessor& who, uint32_t mask, AccessKind kind,
                               uint32_t scope_first, std::vector<SplitCell>& splits, const WarpOrder& order,
                               bool* initialised);

}  // namespace cuda_emulation
