#include <tandem/tests/fuzz/fuzz.h>

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <tandem/base/error.h>
#include <tandem/tensor/allocator.h>

namespace {

constexpr int64_t kAllowance = 64 << 10;  // bytes: error texts, streams, read buffers

// Bytes allocated by operator new. Memory of tensors is counted by their device.
std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};

void* allocate(size_t size) noexcept {
  void* block = std::malloc(size);
  if (block == nullptr) return nullptr;
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(block));
  if (now > peak) peak = now;
  return block;
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  held -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

[[noreturn]] void fail(const char* what, int64_t got, int64_t limit) {
  std::fprintf(stderr, "fuzz: %s (%lld, limit %lld)\n", what, static_cast<long long>(got),
               static_cast<long long>(limit));
  std::abort();
}

}  // namespace

void* operator new(size_t size) {
  void* block = allocate(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }

namespace tandem::testing {

namespace {

void attempt(FunctionRef<void()> parse) {
  try {
    parse();
  } catch (const IoError&) {
  } catch (const DTypeError&) {
  }
}

}  // namespace

void fuzz(size_t size, int64_t factor, FunctionRef<void()> parse) {
  // The first error of a process allocates objects that are never freed: a rank context, locales.
  static const bool warm = [&] {
    attempt(parse);
    return true;
  }();
  static_cast<void>(warm);
  const int64_t limit = kAllowance + factor * static_cast<int64_t>(size);
  const int64_t tensors_before = memory_stats(Device()).allocated;
  reset_peak_memory(Device());
  const int64_t before = held;
  peak = before;
  attempt(parse);
  const int64_t heap = peak - before;
  const int64_t tensors = memory_stats(Device()).peak_allocated - tensors_before;
  if (heap > limit) fail("too much memory for an input of this size", heap, limit);
  if (tensors > limit) fail("too much memory in tensors for an input of this size", tensors, limit);
}

void fuzz_file(const uint8_t* data, size_t size, int64_t factor, FunctionRef<void(const std::string& path)> parse) {
  const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
  for (size_t done = 0; done < size;) {
    const ssize_t written = ::write(descriptor, data + done, size - done);
    if (written <= 0) fail("cannot write the input", written, 0);
    done += static_cast<size_t>(written);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  fuzz(size, factor, [&] { parse(path); });
  ::close(descriptor);
}

}  // namespace tandem::testing
