// A rank that is stopped for longer than a lost machine is waited for, as in a debugger, over gloo.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backend.h>
#include <tandem/distributed/gloo/gloo_backend.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/store/socket.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/process_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

TANDEM_RANK_MAIN(go_on_after_long) {
  const ProcessGroupOptions options = {.store = context.store(),
                                       .rank = context.rank(),
                                       .world_size = context.world_size(),
                                       .name = "patient",
                                       .timeout = kLong};
  // More may be on the way than the kernel's buffers hold, so that the stopped rank's says that it has no room.
  const auto group = ProcessGroupAccess::make(options, gloo::make_gloo_backend(options, {.slots = 64}));
  // So much that it is not over before the other is stopped.
  constexpr int kTimes = 8;
  const Tensor x = full({16 << 20}, 1.0 + group->rank());
  group->barrier();
  std::vector<Work> works;
  for (int i = 0; i < kTimes; ++i) works.push_back(group->all_reduce_async(x));
  if (group->rank() == 1) context.store()->set("started", std::to_string(getpid()));
  if (group->rank() == 0) {
    const pid_t other = std::stoi(context.store()->get("started", kLong));
    kill(other, SIGSTOP);
    std::this_thread::sleep_for(kLostAfter + std::chrono::seconds(3));
    const bool is_over = works.back().is_completed();
    kill(other, SIGCONT);
    if (is_over) throw StateError("it was over before the other was stopped");
  }
  for (const Work& work : works) work.wait();
  if (!same_bytes(x, full({16 << 20}, 3 << (kTimes - 1)))) throw StateError("a wrong sum");
}

TEST(StoppedForLong, GoesOn) { spawn(2, "go_on_after_long", {}); }

}  // namespace
}  // namespace tandem::inline v0::distributed
