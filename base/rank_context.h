// RankContext: the library's only per-thread state.
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
  /// `name` is the text.
  explicit ScopeName(std::string name) : text(std::move(name)) {}
  const std::string text;  ///< "Linear 'encoder.fc1'"
};

struct OpenTraceSpan;

/// The innermost open trace span of a thread. Not copied: a context copied for another thread starts without one.
struct OpenTraceSpans {
  OpenTraceSpan* innermost = nullptr;  ///< owned by its TraceSpan

  OpenTraceSpans() = default;
  OpenTraceSpans(const OpenTraceSpans&) {}
  OpenTraceSpans& operator=(const OpenTraceSpans&) { return *this; }
};

/// A thread's innermost cuda::StreamGuard, and its running cuda::Graph capture. Not copied: a context copied for
/// another thread starts without them.
struct OpenStreams {
  const void* innermost = nullptr;  ///< a cuda::StreamGuard
  void* capture = nullptr;          ///< owned by the cuda::Graph

  OpenStreams() = default;
  OpenStreams(const OpenStreams&) {}
  OpenStreams& operator=(const OpenStreams&) { return *this; }
};

/// The running backward and checkpoint of a thread. Not copied: a context copied for another thread starts without it.
struct OpenAutograd {
  void* backward = nullptr;     ///< the running GraphTask
  void* checkpoint = nullptr;   ///< the innermost autograd::Recomputation that collects saved tensors
  bool is_recomputing = false;  ///< whether backward is running a checkpointed function again

  OpenAutograd() = default;
  OpenAutograd(const OpenAutograd&) {}
  OpenAutograd& operator=(const OpenAutograd&) { return *this; }
};

/// The state of one rank, or of a thread that works for one.
///
/// A thread has exactly one current context. The main thread, and any thread without an installed context, creates a
/// new one on first use. Threads that run concurrently with their creator (loader workers, a group's worker) use a copy
/// of its context. The copy shares the objects behind the two `..._slot` members, but has its own modes (grad_enabled,
/// autocast and others), so no mode is written by two threads. Pool threads use the caller's context itself, because
/// the caller waits for them.
struct TANDEM_API RankContext {
  int rank = 0;                            ///< number of this rank in the job
  int world_size = 1;                      ///< number of ranks of the job
  int local_rank = 0;                      ///< number of this rank on its host
  int local_world_size = 1;                ///< number of ranks on this host
  int num_threads = 0;                     ///< threads that parallel_for may use; 0 = the rank's share of the cores
  int trace_thread = 0;                    ///< number of this thread in trace events, see set_trace_thread
  bool grad_enabled = true;                ///< whether operations are recorded for backward
  int8_t autocast = -1;                    ///< -1 = off, else the DType to which autocast converts
  bool allow_tf32 = false;                 ///< set by cuda::set_allow_tf32
  uint64_t next_node = 1;                  ///< creation number of the next autograd node
  bool detect_anomaly = false;             ///< see DetectAnomalyGuard
  bool skip_init = false;                  ///< see nn::init::SkipGuard
  bool defer_init = false;                 ///< see DeferGuard
  OpenAutograd open_autograd;              ///< owned by autograd/
  OpenTraceSpans open_span;                ///< parent of the next trace span; trace_work adds to it
  OpenStreams open_streams;                ///< owned by tensor/
  RefPtr<ScopeName> module_scope;          ///< the innermost running module; null outside modules
  std::shared_ptr<void> tensor_slot;       ///< owned by tensor/: the generators of devices
  std::shared_ptr<void> distributed_slot;  ///< owned by distributed/: the default group

  /// The calling thread's context; valid until the thread ends or installs another one.
  static RankContext& current();

  /// Makes a context current for the calling thread until destroyed.
  class TANDEM_API Use {
   public:
    /// Makes `context`, which must outlive this object, current.
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
