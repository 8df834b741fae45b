// Data-parallel loops on the process's thread pool.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Calls fn(begin, end) for consecutive pieces of [0, n), each of `grain` items (the last may be shorter), concurrently
/// on the threads of the pool; returns when all have finished. The pieces depend only on n and grain, so results do not
/// depend on the number of threads. After all pieces have ended, rethrows the exception of the first failed piece. A
/// nested call, from inside a piece, runs its pieces sequentially.
TANDEM_API void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> fn);

/// Number of threads that parallel_for uses for the calling rank: RankContext::num_threads, or if that is 0, the
/// environment variable TANDEM_NUM_THREADS, or without it the rank's share of the cores. Throws ValueError unless the
/// variable is an integer from 1 to 4096.
TANDEM_API int num_threads();

/// Sets the number of threads that parallel_for may use for the calling rank; 0 = that of the environment or the rank's
/// share of the cores, as above. Throws ValueError if negative.
TANDEM_API void set_num_threads(int n);

}}  // namespace tandem::v0
