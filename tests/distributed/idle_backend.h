// A backend that does nothing, for tests that override what they look at.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>

namespace tandem { inline namespace v0 { namespace distributed {

class IdleBackend : public Backend {
 public:
  const char* name() const override { return "idle"; }
  std::string describe() const override { return "idle"; }
  int max_polls() const override { return 1; }
  void do_start(const Collective&) override {}
  Advance do_advance() override { return Advance::kIdle; }
  void do_start_p2p(P2pRequest&) override {}
  Advance do_advance_p2p() override { return Advance::kIdle; }
  void do_sleep(FunctionRef<bool()>, Clock::time_point) override {}
  void do_wake() override {}
  void do_cancel() override {}
  bool do_needs(int) override { return false; }
  bool do_needs_p2p(int) override { return false; }
  LastStarted do_last_started(int) const override { return {}; }
  std::vector<int> do_awaited() override { return {}; }
  void do_notify(const std::function<void()>&) override {}
};

}}}  // namespace tandem::v0::distributed
