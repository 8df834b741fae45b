// The memory of one device, or pinned host memory: a reserved address range in which blocks are allocated.
//
// A device's range is inaccessible (PROT_NONE) except while a task that may use it runs. A table has, for each granule
// of 256 bytes, the number of bytes that belong to a live block; access checks read it. A second range contains the
// shadow cells of the race check. Blocks begin at multiples of 256 and are followed by at least 256 guard bytes.
// Blocks of kSparseBytes and more use physical memory only for the pages that are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <tandem/tests/cuda_emulation/race_cell.h>

namespace cuda_emulation {

inline constexpr size_t kMemoryGranule = 256;
inline constexpr size_t kSparseBytes = size_t{64} << 20;

struct MemoryBlock {
  uintptr_t begin;
  size_t num_bytes;
};

class Arena {
 public:
  /// At most `limit` bytes can be allocated; closed = inaccessible until open().
  Arena(std::string name, size_t limit, bool closed);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const std::string& name() const { return name_; }
  uintptr_t base() const { return base_; }
  size_t size() const { return size_; }
  size_t limit() const { return limit_; }
  size_t live_bytes() const { return live_bytes_; }

  bool contains(const void* p) const { return reinterpret_cast<uintptr_t>(p) - base_ < size_; }

  /// Allocates a block, filled with 0xFF; nullptr if the limit is reached.
  void* allocate(size_t num_bytes);
  /// False if no block begins there.
  bool release(void* p);

  /// Whether the `num_bytes` from the address are inside one live block.
  bool live(const void* p, size_t num_bytes) const;
  /// The live block that contains the address, else the nearest one before it.
  std::optional<MemoryBlock> block_before(const void* p) const;
  /// The freed block that contained the address, unless its memory was reused.
  bool was_freed(const void* p) const;

  /// Number of bytes of the granule at `offset` that belong to a live block.
  unsigned int valid_bytes(size_t offset) const { return valid_[offset / kMemoryGranule]; }
  RaceCell* cells() const { return cells_; }

  void set_open(bool open);

 private:
  void mark(size_t offset, size_t num_bytes, bool live);
  void fill(char* p, size_t num_bytes);

  std::string name_;
  size_t limit_;
  bool closed_;
  bool open_ = false;
  uintptr_t base_ = 0;
  size_t size_ = 0;
  uint16_t* valid_ = nullptr;
  RaceCell* cells_ = nullptr;
  size_t live_bytes_ = 0;
  std::map<size_t, size_t> blocks_;  // offset -> requested bytes
  std::map<size_t, size_t> free_;    // offset -> bytes, whole granules
  std::map<size_t, size_t> freed_;   // offset -> bytes of freed blocks
};

}  // namespace cuda_emulation
