// Joins the members of a group while its first operations already wait in the queue. Private to distributed/.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>

#include <tandem/distributed/group/group_queue.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A thread that makes the backend of a queue and hands it over. If that fails, the group fails with the reason. If the
/// group fails before, the thread stops waiting for other members.
class Joining {
 public:
  using Make = std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>;

  /// Calls make(options) on the thread, with the options of the queue and a store whose waits can be ended.
  Joining(const std::shared_ptr<GroupQueue>& queue, Make make);
  /// Waits up to 1 s for missing members, unless an exception is in flight. Then the group fails. Without operations
  /// in the queue.
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

 private:
  GroupQueue& queue_;
  std::promise<void> is_over_;
  std::thread thread_;
};

}}}  // namespace tandem::v0::distributed
