// Copies past the caches.  Private to tensor/.
#pragma once

#include <cstddef>

namespace tandem { inline namespace v0 { namespace chores {

/// Copies num_bytes to `out`, which is aligned to 64 bytes, with non-temporal stores, and orders them before later
/// stores. For data that another core reads next: it finds lines in memory, not dirty in this core's cache.
void stream_copy_avx2(std::byte* out, const std::byte* in, size_t num_bytes);

}}}  // namespace tandem::v0::chores
