#include <tandem/base/thread.h>

#include <pthread.h>
#include <signal.h>

#include <cerrno>

#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

bool takes(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 0;
}

TEST(StartThread, SignalsAreBlockedInNewThreadOnly) {
  ASSERT_TRUE(takes(SIGINT));
  bool taken = true;
  start_thread([&] { taken = takes(SIGINT) || takes(SIGPIPE) || takes(SIGTERM); }).join();
  EXPECT_FALSE(taken);
  EXPECT_TRUE(takes(SIGINT));
}

TEST(StartThread, MissingStackMemoryIsNamedInTheError) {
  pthread_attr_t before;
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  pthread_attr_setstacksize(&huge, size_t{1} << 48);
  pthread_setattr_default_np(&huge);
  std::string text;
  try {
    start_thread([] {}).join();
  } catch (const ResourceError& e) {
    text = e.what();
  }
  pthread_setattr_default_np(&before);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  EXPECT_TRUE(text.starts_with("cannot start a thread (Cannot allocate memory): the memory limit (ulimit -v, "))
      << text;
  start_thread([] {}).join();
  EXPECT_EQ(resource_limit_text(EPERM),
            "(Operation not permitted): an old container runtime may block clone3; update it");
}

TEST(RunTogether, CallsRunConcurrentlyWithEqualThreadShares) {
  set_num_threads(6);
  RankContext::current().rank = 5;
  std::atomic<int> arrived{0};
  std::array<int, 3> threads{};
  std::array<int, 3> ranks{};
  std::array<std::thread::id, 3> ids{};
  run_concurrently(3, [&](int i) {
    // A barrier: returns only if all calls run concurrently.
    for (++arrived; arrived < 3;) std::this_thread::yield();
    const size_t k = static_cast<size_t>(i);
    threads[k] = num_threads();
    ranks[k] = RankContext::current().rank;
    ids[k] = std::this_thread::get_id();
    set_num_threads(1);  // changes only the copy of the context
  });
  EXPECT_EQ(threads, (std::array<int, 3>{2, 2, 2}));
  EXPECT_EQ(ranks, (std::array<int, 3>{5, 5, 5}));
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
  EXPECT_EQ(num_threads(), 6);
  RankContext::current().rank = 0;
  set_num_threads(0);
}

TEST(RunTogether, LowestIndexFailureIsRethrownAfterAllFinish) {
  std::atomic<int> done{0};
  const auto f = [&](int i) {
    ++done;
    if (i > 0) throw std::runtime_error(std::to_string(i));
  };
  EXPECT_ERROR(std::runtime_error, run_concurrently(4, f), "1");
  EXPECT_EQ(done, 4);
  run_concurrently(0, f);
  EXPECT_EQ(done, 4);
  run_concurrently(1, f);
  EXPECT_EQ(done, 5);
}

}}  // namespace tandem
