#include <tandem/tests/support/allocations.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include <tandem/tensor/allocator.h>

// The linker puts __wrap_f in the place of f, and f in that of __real_f (--wrap).
tandem::Block real_allocate(tandem::Device device,
                            int64_t num_bytes) __asm__("__real__ZN6tandem2v08allocateENS0_6DeviceEl");
tandem::Block counted_allocate(tandem::Device device,
                               int64_t num_bytes) __asm__("__wrap__ZN6tandem2v08allocateENS0_6DeviceEl");
extern "C" void* __real_aligned_alloc(size_t alignment, size_t size);
extern "C" void* __real_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset);

namespace {

struct Counts {
  int64_t heap = 0;
  int64_t blocks = 0;
  int64_t system = 0;
};
constinit thread_local Counts counts;

void* allocate(size_t size, size_t alignment) {
  ++counts.heap;
  const bool is_aligned = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  void* const block =
      is_aligned ? std::malloc(size) : __real_aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

// The other forms of new and delete call these.
void* operator new(size_t size) { return allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { std::free(block); }

tandem::Block counted_allocate(tandem::Device device, int64_t num_bytes) {
  ++counts.blocks;
  return real_allocate(device, num_bytes);
}
extern "C" void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  ++counts.system;
  return __real_aligned_alloc(alignment, size);
}
extern "C" void* __wrap_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  ++counts.system;
  return __real_mmap(address, size, protection, flags, fd, offset);
}

namespace tandem::testing {

int64_t heap_allocations() { return counts.heap; }
int64_t block_allocations() { return counts.blocks; }
int64_t system_allocations() { return counts.system; }

}  // namespace tandem::testing
