// The state of the race check for four bytes of memory.
//
// An access is a 64-bit record. Its serial number is the time: one counter counts launches, blocks and intervals
// between barriers, so "an earlier launch", "another block of this launch" and "an earlier interval of this block" are
// comparisons with the serial at the start of launch, block and interval. A kernel ends at its first race, so all
// accesses in a cell are ordered, and a few records suffice to find the next race: the last plain write, one later
// access of another block, and accesses of the current interval by two threads if two made any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cuda_emulation {

inline constexpr size_t kBytesOfCell = 4;

enum AccessKind : uint64_t { kPlainWrite = 0, kPlainRead = 1, kAtomic = 2 };  // 3: a read and an atomic access

struct AccessRecord {
  static uint64_t make(uint32_t serial, uint32_t thread, uint32_t mask, uint64_t kind) {
    return static_cast<uint64_t>(serial) << 32 | thread << 6 | mask << 2 | kind;
  }
  static uint32_t serial(uint64_t r) { return static_cast<uint32_t>(r >> 32); }
  static uint32_t thread(uint64_t r) { return static_cast<uint32_t>(r >> 6) & 0x3FF; }
  static uint32_t mask(uint64_t r) { return static_cast<uint32_t>(r >> 2) & 0xF; }
  static uint64_t kind(uint64_t r) { return r & 3; }
};

struct RaceCell {
  uint64_t write;  // last plain write; kind 3 marks a split cell
  uint64_t other;  // later, by another block or in an earlier interval; in a split cell: index of the byte cells
  uint64_t first;  // later, in the current interval
  uint64_t second;
};

/// One cell per byte, for a split cell: a cell whose accesses have different bytes.
struct SplitCell {
  RaceCell bytes[4];
};

/// Thread and interval of an access.
struct Accessor {
  uint32_t serial;       // of the current interval
  uint32_t block_first;  // serial at the start of the block
  uint32_t thread;       // index in the block
};

struct Race {
  uint64_t earlier;
};

/// Records an access to bytes of a cell; records before serial `scope_first` are ignored. Returns the earlier access
/// with which it races. `initialised` (may be null) is set to whether these bytes have been written.
std::optional<Race> touch_cell(RaceCell& cell, const Accessor& who, uint32_t mask, AccessKind kind,
                               uint32_t scope_first, std::vector<SplitCell>& splits, bool* initialised);

}  // namespace cuda_emulation
