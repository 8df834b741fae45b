// Creates groups for the library and its tests. Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/process_group.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Creates the backend that options.backend names. Collective. Throws CommError like ProcessGroup::create.
std::unique_ptr<Backend> make_backend(const ProcessGroupOptions& options);

/// Time after which a group reports a waiting operation.
inline constexpr std::chrono::milliseconds kStall{5000};

/// Makes a group on a given backend; for ProcessGroup::create and for tests that choose a backend's tuning.
struct ProcessGroupAccess {
  /// If `backend` is null, join(options) makes it on a thread of its own (see Joining).
  static std::shared_ptr<ProcessGroup> make(
      const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall = kStall,
      const std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>& join = {});
  /// Like ProcessGroup::create, but returns immediately (see Joining).
  static std::shared_ptr<ProcessGroup> create_deferred(ProcessGroupOptions options);
  /// Blocks until all work that the group launched on its GPU is complete or has failed. From then on traces contain
  /// it.
  static void finish_gpu(ProcessGroup& group);
};

}}}  // namespace tandem::v0::distributed
