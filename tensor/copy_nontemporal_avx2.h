// memcpy with non-temporal stores. Private to tensor/.
#pragma once

#include <cstddef>

namespace tandem { inline namespace v0 { namespace primitives {

/// Copies num_bytes to `out`, aligned to 64 bytes, with non-temporal stores followed by a store fence. Use for data
/// that another core reads next: it reads from memory instead of fetching dirty lines from this core's cache.
void copy_nontemporal_avx2(std::byte* out, const std::byte* in, size_t num_bytes);

}}}  // namespace tandem::v0::primitives
