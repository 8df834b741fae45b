// The memory of one device, or pinned memory of the host: a reserved range of addresses in which blocks are allocated.
//
// A device's range is without access (PROT_NONE) except while a task runs that may touch it.  For each 256 bytes a table tells how
// many of them belong to a live block, which is what a check of an access asks; shadow cells for the race check lie in a second
// range.  Blocks begin at multiples of 256 and at least 256 dead bytes follow each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <tandem/tests/cuda_emulation/race_cell.h>

namespace cuda_emulation {

inline constexpr size_t kMemoryGranule = 256;

struct MemoryBlock {
  uintptr_t begin;
  size_t num_bytes;
};

class Arena {
 public:
  /// `limit` bytes may be allocated; closed = without access until open().
  Arena(std::string name, size_t limit, bool closed);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const std::string& name() const { return name_; }
  uintptr_t base() const { return base_; }
  size_t size() const { return size_; }
  size_t limit() const { return limit_; }
  size_t live_bytes() const { return live_bytes_; }

  bool contains(const void* p) const { return reinterpret_cast<uintptr_t>(p) - base_ < size_; }

  /// nullptr where the limit is reached.  The block's bytes are 0xFF.
  void* allocate(size_t num_bytes);
  /// False if no block begins there.
  bool release(void* p);

  /// Whether `num_bytes` from there are bytes of one live block.
  bool live(const void* p, size_t num_bytes) const;
  /// The live block around an address or the nearest one before it.
  std::optional<MemoryBlock> block_before(const void* p) const;
  /// The freed block that lay around an address, unless its memory was used again.
  bool was_freed(const void* p) const;

  /// How many bytes of the granule that `offset` lies in belong to a live block.
  unsigned int valid_bytes(size_t offset) const { return valid_[offset / kMemoryGranule]; }
  RaceCell* cells() const { return cells_; }

  void set_open(bool open);

  /// Forgets all accesses.
  void clear_cells();

 private:
  void mark(size_t offset, size_t num_bytes, bool live);

  std::string name_;
  size_t limit_;
  bool closed_;
  bool open_ = false;
  uintptr_t base_ = 0;
  size_t size_ = 0;
  uint16_t* valid_ = nullptr;
  RaceCell* cells_ = nullptr;
  size_t live_bytes_ = 0;
  std::map<size_t, size_t> blocks_;  // offset -> bytes asked for
  std::map<size_t, size_t> free_;    // offset -> bytes, whole granules
  std::map<size_t, size_t> freed_;   // offset -> bytes of blocks that were
};

}  // namespace cuda_emulation
