// How launch, spawn and run_threads make a rank's Context.  Private to distributed/.
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
  std::string interface = {};
  std::shared_ptr<InitSession> session = {};
};

struct TANDEM_API ContextAccess {
  /// Makes a Context and installs it, with the rank's numbers and thread budget, in `rank_context`.
  static std::shared_ptr<Context> install(RankContext& rank_context, const ContextOptions& options);
  /// Lets go of the group, which is to end before its store does.
  static void drop_group(Context& context);
  /// Null where init_process_group did not make the context.
  static const std::shared_ptr<InitSession>& session(const Context& context) { return context.session_; }
};

}}}  // namespace tandem::v0::distributed
