#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <tandem/tests/cuda_emulation/arena.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) (static_cast<void>(p), static_cast<void>(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) (static_cast<void>(p), static_cast<void>(n))
#endif

namespace cuda_emulation {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

void* reserve(size_t num_bytes, int protection) {
  void* p = ::mmap(nullptr, num_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("cuda_emulation: mmap");
    std::abort();
  }
  ::madvise(p, num_bytes, MADV_DONTDUMP);
  return p;
}

size_t rounded(size_t num_bytes) { return (num_bytes + kMemoryGranule - 1) / kMemoryGranule * kMemoryGranule; }

size_t with_redzone(size_t num_bytes) { return rounded(num_bytes) + kMemoryGranule; }

constexpr size_t kPage = 4096;
constexpr size_t kFillBytes = size_t{16} << 20;

/// A file of 0xFF bytes in memory.
int make_fill_file() {
  const std::vector<char> bytes(kFillBytes, '\xFF');
  const int file = ::memfd_create("cuda_emulation", MFD_CLOEXEC);
  if (file < 0 || ::write(file, bytes.data(), kFillBytes) != static_cast<ssize_t>(kFillBytes)) {
    std::perror("cuda_emulation: memfd_create");
    std::abort();
  }
  return file;
}

}  // namespace

// The range is twice the limit, so that guard bytes and gaps between blocks do not count against the limit.
Arena::Arena(std::string name, size_t limit, bool closed)
    : name_(std::move(name)), limit_(limit), closed_(closed), size_(2 * rounded(limit) + (size_t{1} << 20)) {
  size_ = (size_ + kHugePage - 1) / kHugePage * kHugePage;
  // Huge pages, because each kernel changes the protection of all touched pages twice.
  void* const range = reserve(size_ + kHugePage, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
  base_ = (reinterpret_cast<uintptr_t>(range) + kHugePage - 1) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(base_), size_, MADV_HUGEPAGE);  // if available
  open_ = !closed;
  valid_ = static_cast<uint16_t*>(reserve(size_ / kMemoryGranule * sizeof(uint16_t), PROT_READ | PROT_WRITE));
  cells_ = static_cast<RaceCell*>(reserve(size_ / kBytesOfCell * sizeof(RaceCell), PROT_READ | PROT_WRITE));
  free_[kMemoryGranule] = size_ - kMemoryGranule;  // guard bytes before the first block
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(base_), kMemoryGranule);
}

void Arena::mark(size_t offset, size_t num_bytes, bool live) {
  for (size_t done = 0; done < num_bytes; done += kMemoryGranule) {
    const size_t here = num_bytes - done < kMemoryGranule ? num_bytes - done : kMemoryGranule;
    valid_[(offset + done) / kMemoryGranule] = live ? static_cast<uint16_t>(here) : 0;
  }
}

// Fills with 0xFF bytes. Large blocks get private mappings of one file, whose pages are copied when they are written.
void Arena::fill(char* p, size_t num_bytes) {
  const bool was_open = open_;
  set_open(true);
  if (num_bytes >= kSparseBytes) {
    static const int file = make_fill_file();
    const size_t before = -reinterpret_cast<uintptr_t>(p) % kPage;
    std::memset(p, 0xFF, before);
    p += before;
    num_bytes -= before;
    while (num_bytes >= kPage) {
      const size_t here = std::min(kFillBytes, num_bytes / kPage * kPage);
      if (::mmap(p, here, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
        std::perror("cuda_emulation: mmap of a large block");
        std::abort();
      }
      p += here;
      num_bytes -= here;
    }
  }
  std::memset(p, 0xFF, num_bytes);
  set_open(was_open);
}

void* Arena::allocate(size_t num_bytes) {
  if (num_bytes == 0 || num_bytes > limit_ || rounded(num_bytes) > limit_ - live_bytes_) {
    return nullptr;
  }
  const size_t needed = with_redzone(num_bytes);
  auto it = free_.begin();
  while (it != free_.end() && it->second < needed) {
    ++it;
  }
  if (it == free_.end()) {
    return nullptr;
  }
  const auto [offset, available] = *it;
  free_.erase(it);
  if (available > needed) {
    free_[offset + needed] = available - needed;
  }
  for (auto freed = freed_.lower_bound(offset); freed != freed_.end() && freed->first < offset + needed;) {
    freed = freed_.erase(freed);
  }
  if (auto before = freed_.lower_bound(offset); before != freed_.begin()) {
    --before;
    if (before->first + before->second > offset) {
      freed_.erase(before);
    }
  }
  blocks_[offset] = num_bytes;
  live_bytes_ += rounded(num_bytes);
  mark(offset, num_bytes, true);
  void* p = reinterpret_cast<void*>(base_ + offset);
  ASAN_UNPOISON_MEMORY_REGION(p, num_bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(p) + num_bytes, needed - num_bytes);
  fill(static_cast<char*>(p), num_bytes);
  return p;
}

bool Arena::release(void* p) {
  const size_t offset = reinterpret_cast<uintptr_t>(p) - base_;
  const auto it = blocks_.find(offset);
  if (offset >= size_ || it == blocks_.end()) {
    return false;
  }
  const size_t num_bytes = it->second;
  fill(static_cast<char*>(p), num_bytes);
  mark(offset, num_bytes, false);
  ASAN_POISON_MEMORY_REGION(p, num_bytes);
  blocks_.erase(it);
  live_bytes_ -= rounded(num_bytes);
  freed_[offset] = num_bytes;

  size_t begin = offset, length = with_redzone(num_bytes);
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == begin + length) {
    length += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      length += before->second;
      free_.erase(before);
    }
  }
  free_[begin] = length;
  return true;
}

std::optional<MemoryBlock> Arena::block_before(const void* p) const {
  const size_t offset = reinterpret_cast<uintptr_t>(p) - base_;
  auto it = blocks_.upper_bound(offset);
  if (offset >= size_ || it == blocks_.begin()) {
    return std::nullopt;
  }
  --it;
  return MemoryBlock{base_ + it->first, it->second};
}

bool Arena::live(const void* p, size_t num_bytes) const {
  const auto block = block_before(p);
  const size_t inside = block ? reinterpret_cast<uintptr_t>(p) - block->begin : 0;
  return block && inside <= block->num_bytes && num_bytes <= block->num_bytes - inside;
}

bool Arena::was_freed(const void* p) const {
  const size_t offset = reinterpret_cast<uintptr_t>(p) - base_;
  auto it = freed_.upper_bound(offset);
  if (it == freed_.begin()) {
    return false;
  }
  --it;
  return offset - it->first < it->second;
}

void Arena::set_open(bool open) {
  if (!closed_ || open == open_) {
    return;
  }
  if (::mprotect(reinterpret_cast<void*>(base_), size_, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    std::perror("cuda_emulation: mprotect");
    std::abort();
  }
  open_ = open;
}

}  // namespace cuda_emulation
