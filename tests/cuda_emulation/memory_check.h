// The checks of every access of a kernel: whether the address is accessible, and whether conflicting accesses of other
// threads are ordered with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/tests/cuda_emulation/arena.h>
#include <tandem/tests/cuda_emulation/fiber.h>
#include <tandem/tests/cuda_emulation/race_cell.h>

namespace cuda_emulation {

class KernelRun;

class MemoryCheck {
 public:
  explicit MemoryCheck(KernelRun& run) : run_(run) {}

  /// `arenas`: accessible memory, the kernel's own device first; `others`: used only in reports.
  void begin_launch(const std::vector<Arena*>& arenas, const std::vector<Arena*>& others, const void* arguments,
                    size_t num_argument_bytes, char* dynamic_shared, size_t num_dynamic_bytes, uint32_t serial);
  void begin_block(uint32_t serial) {
    who.serial = who.block_first = serial;
    shared_splits_.clear();
  }

  void access(uintptr_t address, size_t num_bytes, AccessKind kind) {
    if (address - stack_low < FiberPool::kStackBytes) {
      return;
    }
    const size_t offset = address - own_base_;
    if (offset < own_size_) {
      const size_t inside = offset % kMemoryGranule;
      if (inside + num_bytes <= own_->valid_bytes(offset)) {
        touch(own_->cells(), offset, num_bytes, kind, launch_first_, splits_, false, address);
        return;
      }
    }
    access_elsewhere(address, num_bytes, kind);
  }

  enum class Space : uint8_t { kGlobal, kShared, kOther };  // kOther: stacks, arguments and constant data
  Space space_of(uintptr_t address) const;

  /// Why the address is not accessible, for the signal handler and for reports.
  std::string describe(uintptr_t address) const;

  Accessor who{};
  uintptr_t stack_low = 0;

 private:
  struct SharedRange {
    uintptr_t begin;
    size_t num_bytes;
    std::vector<RaceCell> cells;
    bool dynamic;
  };
  struct Range {
    uintptr_t begin;
    size_t num_bytes;
  };

  void touch(RaceCell* cells, size_t offset, size_t num_bytes, AccessKind kind, uint32_t scope_first,
             std::vector<SplitCell>& splits, bool shared, uintptr_t address);
  void access_elsewhere(uintptr_t address, size_t num_bytes, AccessKind kind);
  bool in_global(const Arena& arena, uintptr_t address, size_t num_bytes, AccessKind kind);
  void find_shared_ranges();
  [[noreturn]] void refuse(uintptr_t address, size_t num_bytes, AccessKind kind);
  [[noreturn]] void refuse_race(uintptr_t address, size_t num_bytes, AccessKind kind, uint64_t earlier);

  KernelRun& run_;
  Arena* own_ = nullptr;
  uintptr_t own_base_ = 0;
  size_t own_size_ = 0;
  std::vector<Arena*> arenas_;
  std::vector<Arena*> others_;
  Range arguments_{};
  std::vector<SharedRange>
      shared_;  // dynamic shared memory first, then thread-local data, which contains __shared__ variables
  std::vector<Range> program_;  // contains constant data
  uint32_t launch_first_ = 0;
  std::vector<SplitCell> splits_;
  std::vector<SplitCell> shared_splits_;
};

}  // namespace cuda_emulation
