// Copies between tensors and shared memory. Private to distributed/backends/shm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

inline constexpr int64_t kAlignment = 64;
inline constexpr int64_t kMaxCachedBytes = 256;  // up to this size cached stores are faster

/// memcpy that also accepts null pointers for zero bytes, and out == in.
inline void copy_bytes(std::byte* out, const std::byte* in, int64_t num_bytes) {
  if (num_bytes > 0 && out != in) std::memcpy(out, in, static_cast<size_t>(num_bytes));
}

/// Copies to memory that a peer reads next, aligned to kAlignment, with non-temporal stores. If two cores share no
/// cache, dirty lines in one core's cache reach the other core many times slower than lines in memory. If they share a
/// cache, non-temporal stores cost little for data that the caches could hold, and more for larger data (see
/// StreamingStoreTuner).
inline void copy_to_peer(std::byte* out, const std::byte* in, int64_t num_bytes) {
  if constexpr (primitives::kHasNontemporalCopy) {
    if (num_bytes > kMaxCachedBytes) return primitives::copy_nontemporal(out, in, static_cast<size_t>(num_bytes));
  }
  copy_bytes(out, in, num_bytes);
}

}}}  // namespace tandem::v0::distributed::shm
