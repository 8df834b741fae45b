// Copies between tensors and shared memory. Private to distributed/backends/shm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tandem/base/macros.h>
#include <tandem/base/math.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

inline constexpr int64_t kAlignment = 64;
inline constexpr int64_t kMaxCachedBytes = 256;  // up to here the way through the cache is the shorter

/// memcpy, but null pointers are fine where there are no bytes, and so is a copy of bytes to where they are.
inline void copy_bytes(std::byte* out, const std::byte* in, int64_t num_bytes) {
  if (num_bytes > 0 && out != in) std::memcpy(out, in, static_cast<size_t>(num_bytes));
}

/// Copies to where peers read next, aligned to kAlignment, past the caches. Lines that lie dirty in this core's cache
/// reach another core many times slower than lines in memory, where the two cores share no cache; where they do, past
/// the caches costs little for data that the caches would hold, and more for larger (see CacheTrials).
inline void copy_to_peer(std::byte* out, const std::byte* in, int64_t num_bytes) {
  if constexpr (primitives::kHasNontemporalCopy) {
    if (num_bytes > kMaxCachedBytes) return primitives::copy_nontemporal(out, in, static_cast<size_t>(num_bytes));
  }
  copy_bytes(out, in, num_bytes);
}

}}}  // namespace tandem::v0::distributed::shm
