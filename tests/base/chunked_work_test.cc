#include <tandem/base/chunked_work.h>

#include <future>
#include <mutex>

#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST(ChunkedWork, EveryChunkRunsOnceWithinTheConcurrencyLimit) {
  for (const int max_in_flight : {1, 2, 3}) {
    std::atomic<int> now{0};
    std::atomic<int> most{0};
    std::vector<std::atomic<int>> times(200);
    run_chunks({.name = "op", .num_chunks = 200, .max_in_flight = max_in_flight, .run = [&](int64_t chunk) {
                  const int running = ++now;
                  for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
                  }
                  ++times[static_cast<size_t>(chunk)];
                  std::this_thread::yield();
                  --now;
                }});
    for (const auto& n : times) EXPECT_EQ(n, 1);
    EXPECT_LE(most, max_in_flight);
  }
}

TEST(ChunkedWork, FinishesWithoutAnyWaiter) {
  std::promise<std::string> end;
  const auto running = start_chunks({.name = "op",
                                     .num_chunks = 50,
                                     .max_in_flight = 2,
                                     .run = [](int64_t) {},
                                     .finish = [&](std::exception_ptr error) { end.set_value(text_of(error)); }});
  EXPECT_EQ(end.get_future().get(), "");
  EXPECT_FALSE(running->help());
  EXPECT_FALSE(running->cancel());
}

TEST(ChunkedWork, ProgressCallsAreSerializedAndAscending) {
  std::vector<int64_t> seen;  // no lock: the calls exclude one another
  run_chunks({.name = "op",
              .num_chunks = 100,
              .max_in_flight = 3,
              .run = [](int64_t) {},
              .progress = [&](int64_t done) { seen.push_back(done); }});
  ASSERT_EQ(seen.size(), 100u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i + 1));
}

TEST(ChunkedWork, FailureInChunkOrProgressEndsTheWork) {
  for (const bool in_progress : {false, true}) {
    for (int64_t bad = 0; bad < 7; ++bad) {
      std::atomic<int> runs{0};
      std::atomic<int> ends{0};
      const auto fail_at = [&](int64_t chunk) {
        if (chunk == bad) throw std::runtime_error("chunk " + std::to_string(bad));
      };
      ChunkWork work{.name = "op", .num_chunks = 7, .max_in_flight = 1};
      work.run = [&](int64_t chunk) {
        ++runs;
        if (!in_progress) fail_at(chunk);
      };
      if (in_progress) work.progress = [&](int64_t done) { fail_at(done - 1); };
      work.finish = [&](std::exception_ptr error) {
        ++ends;
        EXPECT_EQ(text_of(error), "chunk " + std::to_string(bad));
      };
      EXPECT_THROW(run_chunks(work), std::runtime_error);
      EXPECT_EQ(runs, bad + 1);
      EXPECT_EQ(ends, 1);
    }
  }
}

TEST(ChunkedWork, CancelFinishesAfterTheChunkInFlight) {
  for (int64_t point = 0; point < 5; ++point) {
    std::promise<void> reached;
    std::promise<void> go_on;
    std::promise<std::string> end;
    std::shared_future<void> may_go_on = go_on.get_future().share();
    const auto running = start_chunks({.name = "op",
                                       .num_chunks = 5,
                                       .max_in_flight = 1,
                                       .run =
                                           [&](int64_t chunk) {
                                             if (chunk != point) return;
                                             reached.set_value();
                                             may_go_on.wait();
                                           },
                                       .finish = [&](std::exception_ptr error) { end.set_value(text_of(error)); }});
    reached.get_future().wait();
    EXPECT_TRUE(running->cancel());
    auto text = end.get_future();
    EXPECT_EQ(text.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);  // a chunk is in flight
    go_on.set_value();
    EXPECT_EQ(text.get(), str("op: cancelled after ", point + 1, " of 5 chunks"));
    EXPECT_TRUE(running->cancel());  // the work ended by cancellation
  }
}

TEST(ChunkedWork, CancelBeforeTheFirstChunkFinishesImmediately) {
  // Other work occupies every copy worker.
  std::atomic<int> held{0};
  std::promise<void> go_on, others_done;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  const auto others = start_chunks({.name = "others",
                                    .num_chunks = 64,
                                    .max_in_flight = 64,
                                    .run =
                                        [&](int64_t) {
                                          ++held;
                                          may_go_on.wait();
                                        },
                                    .finish = [&](std::exception_ptr) { others_done.set_value(); }});
  while (held < available_cores()) std::this_thread::yield();
  std::string text;
  const auto work = start_chunks({.name = "op",
                                  .num_chunks = 5,
                                  .max_in_flight = 2,
                                  .run = [&](int64_t) { ADD_FAILURE() << "a chunk was run"; },
                                  .finish = [&](std::exception_ptr error) { text = text_of(error); }});
  EXPECT_TRUE(work->cancel());
  EXPECT_EQ(text, "op: cancelled after 0 of 5 chunks");  // already: nothing is in flight
  EXPECT_FALSE(work->help());
  go_on.set_value();
  others_done.get_future().wait();
}

TEST(ChunkedWork, CancelWaitsForAllChunksInFlight) {
  std::atomic<int> inside{0};
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::promise<std::string> end;
  const auto work = start_chunks({.name = "op",
                                  .num_chunks = 10,
                                  .max_in_flight = 3,
                                  .run =
                                      [&](int64_t) {
                                        ++inside;
                                        may_go_on.wait();
                                      },
                                  .finish = [&](std::exception_ptr error) { end.set_value(text_of(error)); }});
  std::thread first([&] { work->help(); }), second([&] { work->help(); });
  while (inside < 3) std::this_thread::yield();
  EXPECT_TRUE(work->cancel());
  auto text = end.get_future();
  EXPECT_EQ(text.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);
  go_on.set_value();
  EXPECT_EQ(text.get(), "op: cancelled after 3 of 10 chunks");
  EXPECT_EQ(inside, 3);
  first.join();
  second.join();
}

// The first of failure and cancellation determines the result, and cancel() returns which.
TEST(ChunkedWork, EarlierOfCancelAndFailureDecidesTheOutcome) {
  for (const bool cancel_first : {true, false}) {
    std::promise<void> reached, failed;
    std::promise<void> go_on;
    std::shared_future<void> may_go_on = go_on.get_future().share();
    std::promise<std::string> end;
    const auto running = start_chunks({.name = "op",
                                       .num_chunks = 3,
                                       .max_in_flight = 2,
                                       .run =
                                           [&](int64_t chunk) {
                                             if (chunk == 0) {
                                               reached.set_value();
                                               may_go_on.wait();
                                               if (cancel_first) throw std::runtime_error("late");
                                             } else if (!cancel_first) {
                                               throw std::runtime_error("early");
                                             }
                                           },
                                       .finish = [&](std::exception_ptr error) { end.set_value(text_of(error)); }});
    reached.get_future().wait();
    if (cancel_first) {
      EXPECT_TRUE(running->cancel());
      go_on.set_value();
      EXPECT_EQ(end.get_future().get().find("op: cancelled after "), 0u);
    } else {
      while (running->help()) {  // returns once a chunk has failed, on any thread
      }
      EXPECT_FALSE(running->cancel());
      go_on.set_value();
      EXPECT_EQ(end.get_future().get(), "early");
    }
  }
}

TEST(ChunkedWork, WaiterRunsChunksWhenWorkersAreBusy) {
  // Other work occupies all copy workers but one until this work has finished; that one holds its only slot for a
  // while.
  std::promise<void> taken, go_on, end, others_done;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::shared_future<void> ended = end.get_future().share();
  const auto work = start_chunks({.name = "op",
                                  .num_chunks = 4,
                                  .max_in_flight = 1,
                                  .run =
                                      [&](int64_t chunk) {
                                        if (chunk != 0) return;
                                        taken.set_value();
                                        may_go_on.wait();
                                      },
                                  .finish = [&](std::exception_ptr) { end.set_value(); }});
  taken.get_future().wait();
  const auto others = start_chunks({.name = "others",
                                    .num_chunks = 64,
                                    .max_in_flight = 64,
                                    .run = [&](int64_t) { ended.wait(); },
                                    .finish = [&](std::exception_ptr) { others_done.set_value(); }});
  std::thread later([&] { go_on.set_value(); });
  while (work->help()) {
  }
  later.join();
  ended.wait();
  others_done.get_future().wait();
  EXPECT_FALSE(work->cancel());
}

TEST(ChunkedWork, LaterWorkRunsConcurrentlyWithEarlierWork) {
  // The first work ends only after a chunk of the second, which was started later.
  std::promise<void> second_ran;
  std::shared_future<void> second = second_ran.get_future().share();
  std::atomic<bool> waited{false};
  std::promise<void> first_done, second_done;
  const auto one = start_chunks({.name = "first",
                                 .num_chunks = 2,
                                 .max_in_flight = 1,
                                 .run =
                                     [&](int64_t chunk) {
                                       if (chunk == 1) second.wait(), waited = true;
                                     },
                                 .finish = [&](std::exception_ptr) { first_done.set_value(); }});
  const auto two = start_chunks({.name = "second",
                                 .num_chunks = 1,
                                 .max_in_flight = 1,
                                 .run = [&](int64_t) { second_ran.set_value(); },
                                 .finish = [&](std::exception_ptr) { second_done.set_value(); }});
  while (two->help()) {
  }
  first_done.get_future().wait();
  second_done.get_future().wait();
  EXPECT_TRUE(waited);
}

TEST(ChunkedWork, ChunksRunWithCallersRankWithoutGrad) {
  RankContext::current().rank = 3;
  RankContext::current().grad_enabled = true;
  set_num_threads(4);
  std::mutex mutex;
  std::vector<int> ranks, threads, grads;
  run_chunks({.name = "op", .num_chunks = 8, .max_in_flight = 2, .run = [&](int64_t) {
                std::lock_guard lock(mutex);
                ranks.push_back(RankContext::current().rank);
                threads.push_back(num_threads());
                grads.push_back(RankContext::current().grad_enabled);
              }});
  EXPECT_EQ(ranks, std::vector<int>(8, 3));
  EXPECT_EQ(threads, std::vector<int>(8, 1));
  EXPECT_EQ(grads, std::vector<int>(8, 0));
  EXPECT_EQ(num_threads(), 4);
  EXPECT_TRUE(RankContext::current().grad_enabled);
  RankContext::current().rank = 0;
  set_num_threads(0);
}

TEST(ChunkedWork, CapturedObjectsAreReleasedBeforeFinishIsCalled) {
  auto held = std::make_shared<int>(0);
  std::weak_ptr<int> seen = held;
  bool gone = false;
  ChunkWork work{.name = "op", .num_chunks = 3, .max_in_flight = 1};
  work.run = [held](int64_t) { ++*held; };
  work.finish = [&](std::exception_ptr) { gone = seen.expired(); };
  held.reset();
  run_chunks(std::move(work));
  EXPECT_TRUE(gone);
}

TEST(ChunkedWork, NestedRunChunksCompletesAllWork) {
  std::atomic<int64_t> sum{0};
  run_chunks({.name = "outer", .num_chunks = 16, .max_in_flight = 4, .run = [&](int64_t i) {
                run_chunks({.name = "inner", .num_chunks = 20, .max_in_flight = 2, .run = [&, i](int64_t k) {
                              sum += i * 20 + k;
                            }});
              }});
  EXPECT_EQ(sum, 320 * 319 / 2);
}

TEST(ChunkedWork, InvalidChunkCountsAreRejected) {
  EXPECT_THROW(run_chunks({.name = "op", .num_chunks = 0}), ValueError);
  EXPECT_THROW(run_chunks({.name = "op", .num_chunks = 1, .max_in_flight = 0}), ValueError);
}

}}  // namespace tandem
