// Creates the Context of a rank for launch, spawn, run_threads and init_process_group. Private to distributed/.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/context.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct ContextOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int num_threads = 0;
  Device device = {};
  bool thread_ranks = false;
  std::chrono::milliseconds timeout{300000};
  std::shared_ptr<Store> store;
  std::string backend = "auto";
  std::string network_interface = {};
  std::shared_ptr<InitSession> session = {};
};

struct TANDEM_API ContextAccess {
  /// Creates a Context and installs it, with rank, world size and number of threads, in `rank_context`.
  static std::shared_ptr<Context> install(RankContext& rank_context, const ContextOptions& options);
  /// Releases the default group. Call before the store is released, because the group uses it.
  static void drop_group(Context& context);
  /// Null if the context was not created by init_process_group.
  static const std::shared_ptr<InitSession>& session(const Context& context) { return context.session_; }
};

}}}  // namespace tandem::v0::distributed
