// Counts the allocations of programs that depend on this: calls of operator new and of tandem::allocate.
#pragma once

#include <cstdint>

namespace tandem::testing {

/// Number of calls of operator new by the calling thread.
int64_t heap_allocations();

/// Number of blocks of device memory that the calling thread has requested, from the cache or new.
int64_t block_allocations();

/// Number of calls of mmap and aligned_alloc by the calling thread, from which the CPU's allocator gets blocks that its
/// cache lacks.
int64_t system_allocations();

}  // namespace tandem::testing
