// What a rank carries with it: the library's only per-thread state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/base/ref_counted.h>

namespace tandem { inline namespace v0 {

/// Text that names a running module in errors and traces, such as "Linear 'encoder.fc1'".
class TANDEM_API ScopeName : public RefCounted {
 public:
  explicit ScopeName(std::string name) : text(std::move(name)) {}
  const std::string text;
};

struct OpenTraceSpan;

/// The innermost open span of a thread's trace.  A copy, made for another thread, has none.
struct OpenTraceSpans {
  OpenTraceSpan* innermost = nullptr;  ///< owned by its TraceSpan

  OpenTraceSpans() = default;
  OpenTraceSpans(const OpenTraceSpans&) {}
  OpenTraceSpans& operator=(const OpenTraceSpans&) { return *this; }
};

/// The streams that a thread has made current, by cuda::StreamGuard, and the capture of a cuda::Graph that it is inside of.  A copy,
/// made for another thread, has none.
struct OpenStreams {
  const void* innermost = nullptr;
  void* capture = nullptr;

  OpenStreams() = default;
  OpenStreams(const OpenStreams&) {}
  OpenStreams& operator=(const OpenStreams&) { return *this; }
};

/// The state of one rank, or of a thread that works for one.
///
/// A thread has exactly one current context.  The main thread, and any thread that was given none, gets a fresh one of its
/// own on first use.  Threads that run beside their creator (loader workers, a group's worker)
/// take a copy: they share the slots, but not the modes, so that no mode is written from two threads.  Pool threads
/// point at the caller's context, because the caller waits for them.
struct TANDEM_API RankContext {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int num_threads = 0;                     ///< threads that parallel_for may use; 0 = all cores
  int trace_thread = 0;                    ///< number of this thread in trace events, see set_trace_thread
  bool grad_enabled = true;                ///< whether operations are recorded for backward
  int8_t autocast = -1;                    ///< -1 = off, else the DType that autocast lowers to
  bool allow_tf32 = false;                 ///< set by cuda::set_allow_tf32
  uint64_t next_node = 1;                  ///< creation number of the next autograd node
  void* running_backward = nullptr;        ///< the backward that this thread is inside of, owned by autograd/
  OpenTraceSpans open_span;                ///< what the next trace span lies in, and where work is counted
  OpenStreams open_streams;                ///< owned by tensor/
  RefPtr<ScopeName> module_scope;          ///< the innermost running module, null outside
  std::shared_ptr<void> tensor_slot;       ///< owned by tensor/: devices' generators
  std::shared_ptr<void> distributed_slot;  ///< owned by distributed/: the default group

  /// The calling thread's context; never null, valid until the thread ends or installs another.
  static RankContext& current();

  /// Makes a context current for the calling thread until destroyed.
  class TANDEM_API Use {
   public:
    explicit Use(RankContext& context);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    RankContext* previous_;
  };
};

/// Cores this process may run on (its affinity mask).
TANDEM_API int available_cores();

}}  // namespace tandem::v0
