#include <link.h>

#include <algorithm>
#include <cstring>

#include <tandem/tests/cuda_emulation/kernel_run.h>
#include <tandem/tests/cuda_emulation/memory_check.h>
#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {
namespace {

const char* verb(uint64_t kind) {
  return kind == kPlainWrite ? "write" : kind == kPlainRead ? "read" : kind == kAtomic ? "atomic access" : "access";
}

std::string bytes_text(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

}  // namespace

void MemoryCheck::find_shared_ranges() {
  struct Found {
    std::vector<Range> thread_local_data, program;
  } found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& ranges = *static_cast<Found*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
            ranges.thread_local_data.push_back({reinterpret_cast<uintptr_t>(info->dlpi_tls_data), header.p_memsz});
          } else if (header.p_type == PT_LOAD) {
            ranges.program.push_back({info->dlpi_addr + header.p_vaddr, header.p_memsz});
          }
        }
        return 0;
      },
      &found);
  program_ = found.program;
  shared_.resize(found.thread_local_data.size() + 1);
  for (size_t i = 0; i < found.thread_local_data.size(); ++i) {
    SharedRange& range = shared_[i + 1];
    const Range& data = found.thread_local_data[i];
    const size_t inside = data.begin % 16;
    range.begin = data.begin - inside;
    range.num_bytes = data.num_bytes + inside;
    range.cells.resize(range.num_bytes / kBytesOfCell + 1);
    range.dynamic = false;
  }
}

void MemoryCheck::begin_launch(const std::vector<Arena*>& arenas, const std::vector<Arena*>& others,
                               const void* arguments, size_t num_argument_bytes, char* dynamic_shared,
                               size_t num_dynamic_bytes, uint32_t serial) {
  find_shared_ranges();
  own_ = arenas.front();
  own_base_ = own_->base();
  own_size_ = own_->size();
  arenas_ = arenas;
  others_ = others;
  arguments_ = {reinterpret_cast<uintptr_t>(arguments), num_argument_bytes};
  SharedRange& dynamic = shared_.front();
  dynamic.begin = reinterpret_cast<uintptr_t>(dynamic_shared);
  dynamic.num_bytes = num_dynamic_bytes;
  dynamic.dynamic = true;
  if (dynamic.cells.size() < num_dynamic_bytes / kBytesOfCell + 1) {
    dynamic.cells.resize(num_dynamic_bytes / kBytesOfCell + 1);
  }
  launch_first_ = serial;
  splits_.clear();
}

void MemoryCheck::touch(RaceCell* cells, size_t offset, size_t num_bytes, AccessKind kind, uint32_t scope_first,
                        std::vector<SplitCell>& splits, bool shared, uintptr_t address) {
  for (size_t done = 0; done < num_bytes;) {
    const size_t at = (offset + done) % kBytesOfCell;
    const size_t here = std::min(kBytesOfCell - at, num_bytes - done);
    const auto mask = static_cast<uint32_t>(((1U << here) - 1) << at);
    bool initialised = true;
    const bool ask = shared && kind != kPlainWrite;
    const auto race = touch_cell(cells[(offset + done) / kBytesOfCell], who, mask, kind, scope_first, splits,
                                 ask ? &initialised : nullptr);
    if (race) {
      refuse_race(address, num_bytes, kind, race->earlier);
    }
    if (!initialised) {
      run_.fail(cudaErrorLaunchFailure, std::string(verb(kind)) + " of uninitialised shared memory: " +
                                            bytes_text(num_bytes) + " of " + describe(address));
    }
    done += here;
  }
}

bool MemoryCheck::in_global(const Arena& arena, uintptr_t address, size_t num_bytes, AccessKind kind) {
  if (address - arena.base() >= arena.size()) {
    return false;
  }
  for (size_t done = 0; done < num_bytes;) {  // granule by granule
    const size_t offset = address + done - arena.base();
    const size_t inside = offset % kMemoryGranule;
    const size_t here = std::min(kMemoryGranule - inside, num_bytes - done);
    if (offset >= arena.size() || inside + here > arena.valid_bytes(offset)) {
      refuse(address, num_bytes, kind);
    }
    done += here;
  }
  touch(arena.cells(), address - arena.base(), num_bytes, kind, launch_first_, splits_, false, address);
  return true;
}

void MemoryCheck::access_elsewhere(uintptr_t address, size_t num_bytes, AccessKind kind) {
  for (SharedRange& range : shared_) {
    const size_t offset = address - range.begin;
    if (offset < range.num_bytes && num_bytes <= range.num_bytes - offset) {
      touch(range.cells.data(), offset, num_bytes, kind, who.block_first, shared_splits_, true, address);
      return;
    }
  }
  for (const Arena* arena : arenas_) {
    if (in_global(*arena, address, num_bytes, kind)) {
      return;
    }
  }
  if (kind == kPlainRead) {
    if (address - arguments_.begin < arguments_.num_bytes) {
      return;
    }
    for (const Range& range : program_) {
      if (address - range.begin < range.num_bytes) {
        return;
      }
    }
  }
  refuse(address, num_bytes, kind);
}

MemoryCheck::Space MemoryCheck::space_of(uintptr_t address) const {
  if (address - stack_low < FiberPool::kStackBytes) {
    return Space::kOther;
  }
  for (const SharedRange& range : shared_) {
    if (address - range.begin < range.num_bytes) {
      return Space::kShared;
    }
  }
  for (const Arena* arena : arenas_) {
    if (address - arena->base() < arena->size()) {
      return Space::kGlobal;
    }
  }
  return Space::kOther;
}

std::string MemoryCheck::describe(uintptr_t address) const {
  const auto* p = reinterpret_cast<const void*>(address);
  std::vector<const Arena*> all(arenas_.begin(), arenas_.end());
  all.insert(all.end(), others_.begin(), others_.end());
  for (const Arena* arena : all) {
    if (!arena->contains(p)) {
      continue;
    }
    const bool reachable = std::find(arenas_.begin(), arenas_.end(), arena) != arenas_.end();
    std::string text = place_in_arena(*arena, p);
    if (!reachable) {
      text += ", which this device has no peer access to";
    }
    return text;
  }
  for (const SharedRange& range : shared_) {
    if (range.dynamic && address - range.begin < kMaxDynamicShared + 4096 && range.begin != 0) {
      if (address - range.begin >= range.num_bytes) {
        return bytes_text(address - range.begin - range.num_bytes) + " past the " + bytes_text(range.num_bytes) +
               " of dynamic shared memory";
      }
      return bytes_text(address - range.begin) + " into the " + bytes_text(range.num_bytes) +
             " of dynamic shared memory";
    }
    if (!range.dynamic && address - range.begin < range.num_bytes) {
      return shared_variable(address);
    }
  }
  if (run_.fibers().on_stack(address)) {
    return address - stack_low < FiberPool::kStackBytes ? "the thread's own stack" : "the stack of another thread";
  }
  for (const Range& range : program_) {
    if (address - range.begin < range.num_bytes) {
      return "data of the program";
    }
  }
  return address < 65536 ? "a null pointer" : "memory of the host";
}

void MemoryCheck::refuse(uintptr_t address, size_t num_bytes, AccessKind kind) {
  run_.fail(cudaErrorIllegalAddress,
            std::string("invalid ") + verb(kind) + " of " + bytes_text(num_bytes) + ": " + describe(address));
}

void MemoryCheck::refuse_race(uintptr_t address, size_t num_bytes, AccessKind kind, uint64_t earlier) {
  const uint64_t earlier_kind = AccessRecord::kind(earlier);
  const bool same_block = AccessRecord::serial(earlier) >= who.block_first;
  std::string text = std::string("race: ") + verb(kind) + " of " + bytes_text(num_bytes) + ", " + describe(address) +
                     ", after a" + (earlier_kind == kAtomic || earlier_kind == 3 ? "n " : " ") + verb(earlier_kind) +
                     " by ";
  if (same_block) {
    text += "thread " + run_.thread_text(AccessRecord::thread(earlier)) + " of the block with no barrier between";
  } else {
    text += "another block, " + run_.block_text_of(AccessRecord::serial(earlier)) + ", thread " +
            run_.thread_text(AccessRecord::thread(earlier));
  }
  run_.fail(cudaErrorLaunchFailure, text);
}

}  // namespace cuda_emulation
