// Background work in chunks.
//
// A *chunk* is a part of the work that any thread may run. It is *in flight* while a thread runs it. Chunks are taken
// in order by *copy workers*, which are threads of the process that process all running work in turn, and by threads
// that wait for the work: a waiting thread runs chunks instead of sleeping.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Describes the work. The functions run on any thread, under a copy of the RankContext of the thread that started the
/// work, with num_threads = 1 and grad mode off.
struct ChunkWork {
  const char* name = "";   ///< name of the public operation, a string literal
  int64_t num_chunks = 0;  ///< at least 1
  int max_in_flight = 1;
  /// Runs one chunk; different chunks may run concurrently. An exception ends the work.
  std::function<void(int64_t chunk)> run = {};
  /// [optional] Called after each chunk with the number of finished chunks, one call at a time, ascending. An exception
  /// ends the work.
  std::function<void(int64_t num_done)> progress = {};
  /// Called once at the end, when no chunk is in flight: with null on success, else with the first failure or
  /// CancelledError. Must not throw.
  std::function<void(std::exception_ptr error)> finish = {};
};

/// Running work. Thread-safe. The functions of ChunkWork, with their captures, are destroyed before `finish` is called.
class TANDEM_API RunningChunks {
 public:
  virtual ~RunningChunks() = default;
  /// Runs one chunk on the calling thread; waits while max_in_flight chunks are in flight. Returns false if no chunk is
  /// left.
  virtual bool help() = 0;
  /// Cancels the work: no further chunk is run, and `finish` gets CancelledError. Returns false if the work has already
  /// finished or failed.
  virtual bool cancel() = 0;
};

/// Starts the work and returns; copy workers run it. If the system cannot start any thread, the calling thread runs all
/// chunks before this returns.
TANDEM_API std::shared_ptr<RunningChunks> start_chunks(ChunkWork work);

/// Runs the work, also on the calling thread, and waits for its end; rethrows the failure. `finish` may be empty.
TANDEM_API void run_chunks(ChunkWork work);

}}  // namespace tandem::v0
