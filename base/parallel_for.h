// The one thread pool.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Calls fn(begin, end) over consecutive pieces of [0, n), each of `grain` items (the last may be shorter), possibly at
/// the same time on the pool's threads; returns when all are done.  The pieces depend on n and grain alone, never on the
/// number of threads, so results do not either.  An exception from a piece is rethrown here after all pieces ended.
/// A call from inside a piece runs its pieces one after the other.
TANDEM_API void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> fn);

/// Threads that parallel_for uses for the calling rank: RankContext::num_threads, or all cores where that is 0.
TANDEM_API int num_threads();

/// Sets the calling rank's thread budget; 0 = all cores.  Throws ValueError if negative.
TANDEM_API void set_num_threads(int n);

}}  // namespace tandem::v0
