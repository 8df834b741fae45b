// A rank that is stopped for longer than a lost machine is waited for, as in a debugger, over gloo.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/store/socket.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/process_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

TANDEM_RANK_MAIN(go_on_after_long) {
  const auto group = ProcessGroup::create({.store = context.store(),
                                           .rank = context.rank(),
                                           .world_size = context.world_size(),
                                           .name = "patient",
                                           .timeout = kLong,
                                           .backend = "gloo"});
  // More than all buffers between the two hold.
  const Tensor x = full({16 << 20}, 1.0 + group->rank());
  context.store()->set("pid" + std::to_string(group->rank()), std::to_string(getpid()));
  group->barrier();
  const Work work = group->all_reduce_async(x);
  if (group->rank() == 0) {
    const pid_t other = std::stoi(context.store()->get("pid1", kLong));
    kill(other, SIGSTOP);
    std::this_thread::sleep_for(kLostAfter + std::chrono::seconds(3));
    kill(other, SIGCONT);
  }
  work.wait();
  if (!same_bytes(x, full({16 << 20}, 3))) throw StateError("a wrong sum");
}

TEST(StoppedForLong, GoesOn) { spawn(2, "go_on_after_long", {}); }

}  // namespace
}  // namespace tandem::inline v0::distributed
