// How the library and its tests make groups. Private to distributed/.
#pragma once

#include <chrono>
#include <memory>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The backend that options.backend names. Collective. Throws CommError as ProcessGroup::create.
std::unique_ptr<Backend> make_backend(const ProcessGroupOptions& options);

/// How long an operation waits before its group says so.
inline constexpr std::chrono::milliseconds kStall{5000};

/// Makes a group on a given backend; for ProcessGroup::create and for tests that choose a backend's tuning.
struct ProcessGroupAccess {
  static std::shared_ptr<ProcessGroup> make(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend,
                                            std::chrono::milliseconds stall = kStall);
  /// As ProcessGroup::create, but returns at once: see LateBackend.
  static std::shared_ptr<ProcessGroup> make_late(ProcessGroupOptions options);
  /// Blocks until what the group has launched on its GPU is done, or has failed: traces have it from then on.
  static void finish_gpu(ProcessGroup& group);
};

}}}  // namespace tandem::v0::distributed
