#include <tandem/base/rank_context.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace tandem { inline namespace v0 {

namespace {

// The library's only per-thread state. A plain pointer, so that reading it costs one instruction.
constinit thread_local RankContext* current_context = nullptr;

}  // namespace

RankContext& RankContext::current() {
  if (current_context == nullptr) [[unlikely]] {
    thread_local RankContext own;  // for a thread without an installed context
    current_context = &own;
  }
  return *current_context;
}

RankContext::Use::Use(RankContext& context) : previous_(current_context) { current_context = &context; }

RankContext::Use::~Use() { current_context = previous_; }

int available_cores() {
  static const int cores = [] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    // The main thread's mask, not the caller's: a rank's thread may be pinned to fewer cores.
    if (sched_getaffinity(getpid(), sizeof(mask), &mask) == 0) return std::max(1, CPU_COUNT(&mask));
    return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  }();
  return cores;
}

}}  // namespace tandem::v0
