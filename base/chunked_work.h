// Work in chunks, done beside the program.
//
// Vocabulary.  A *chunk* is a piece of work that any thread may do.  It is *in flight* from when a thread takes it until it
// is done.  Chunks are taken in order by *carriers*, threads of the process that serve all work by turns, and by whoever
// waits for the work, so that a wait is never only a wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// What is to be done.  The functions run on any thread, under a copy of the RankContext of the thread that started the work,
/// with one thread to compute and nothing recorded for backward.
struct ChunkWork {
  const char* name = "";   ///< of the public operation, a string literal
  int64_t num_chunks = 0;  ///< at least 1
  int max_in_flight = 1;
  /// Different chunks may run at the same time.  What it throws ends the work.
  std::function<void(int64_t chunk)> run = {};
  /// [optional] Called after each chunk with how many are done, one call at a time, ascending.  What it throws ends the work.
  std::function<void(int64_t num_done)> progress = {};
  /// Called once, when no chunk is in flight and none is left to do, or none will be: with the first failure, CancelledError,
  /// or null.  Does not throw.
  std::function<void(std::exception_ptr error)> finish = {};
};

/// Work that was started.  Safe from many threads.  What the functions of ChunkWork hold is released before `finish` returns.
class TANDEM_API RunningChunks {
 public:
  virtual ~RunningChunks() = default;
  /// Does one chunk on the calling thread, as soon as fewer are in flight than may be; false where none is left to take.
  virtual bool help() = 0;
  /// No further chunk is taken, and `finish` gets CancelledError; false where all is finished, or has failed, already.
  virtual bool cancel() = 0;
};

/// Starts the work and returns.  A carrier takes chunks at once; where the system gives no thread for one, all is done before
/// this returns.
TANDEM_API std::shared_ptr<RunningChunks> start_chunks(ChunkWork work);

/// Does the work with the calling thread among those that take chunks; rethrows its failure.  `finish` may be empty.
TANDEM_API void run_chunks(ChunkWork work);

}}  // namespace tandem::v0
