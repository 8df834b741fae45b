#include <tandem/distributed/store.h>

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/file_store.h>
#include <tandem/distributed/rendezvous/memory_store.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;

template <class F>
std::string comm_error_of(F&& f, int* peer = nullptr) {
  try {
    f();
  } catch (const td::CommError& e) {
    if (peer != nullptr) *peer = e.peer();
    return e.what();
  }
  return "no CommError";
}

enum class Kind { kMemory, kTcp, kFile };

/// One store per rank: TCP, a shared file, or one memory store for all.
class Stores {
 public:
  Stores(Kind kind, int n) {
    if (kind == Kind::kFile) {
      for (int r = 0; r < n; ++r) ranks_.push_back(make_file_store(folder_.path() + "/store", {.world_size = n}));
      return;
    }
    if (kind == Kind::kMemory) {
      memory_ = std::make_shared<MemoryStore>();
      ranks_.assign(static_cast<size_t>(n), memory_);
      return;
    }
    const std::string token = wire::random_token();
    server_ = std::make_unique<StoreServer>(StoreServerOptions{.token = token, .world_size = n});
    server_->start();
    for (int r = 0; r < n; ++r) {
      ranks_.push_back(std::make_shared<TcpStore>(
          TcpStoreOptions{.port = server_->port(), .token = token, .rank = r, .world_size = n}));
    }
  }
  Store& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  void leave(int rank) { (*this)[rank].leave(rank); }
  void lose_host() { server_.reset(); }

 private:
  td::testing::TemporaryFolder folder_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<MemoryStore> memory_;
  std::vector<std::shared_ptr<Store>> ranks_;
};

using Texts = std::vector<std::string>;

/// Collects on_failure calls and waits for them.
class Failures {
 public:
  explicit Failures(Store& store) {
    handle_ = store.on_failure([this](int rank, const std::string& reason) {
      std::lock_guard lock(mutex_);
      texts_.push_back(std::to_string(rank) + ": " + reason);
      changed_.notify_all();
    });
  }
  Texts wait_for(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [&] { return texts_.size() >= n; });
    return texts_;
  }
  void remove() { handle_.remove(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Texts texts_;
  td::HookHandle handle_;
};

class StoreInterface : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(, StoreInterface, testing::Values(Kind::kMemory, Kind::kTcp, Kind::kFile), [](const auto& i) {
  return i.param == Kind::kMemory ? "Memory" : i.param == Kind::kTcp ? "Tcp" : "File";
});

TEST_P(StoreInterface, SetIsVisibleToAllRanks) {
  Stores stores(GetParam(), 3);
  const std::string binary("a\0b\n\xff", 5);
  stores[1].set("key", binary);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(stores[r].get("key", 20s), binary);
  stores[2].set("key", "");
  EXPECT_EQ(stores[0].get("key", 20s), "");
}

TEST_P(StoreInterface, GetWaitsForSet) {
  Stores stores(GetParam(), 2);
  std::string got;
  std::thread waiting([&] { got = stores[0].get("late", 20s); });
  stores[1].set("other", "x");
  stores[1].set("late", "y");
  waiting.join();
  EXPECT_EQ(got, "y");
}

TEST_P(StoreInterface, GetTimeoutNamesKey) {
  Stores stores(GetParam(), 2);
  EXPECT_EQ(comm_error_of([&] { stores[1].get("missing", 30ms); }), "store: key 'missing' was not set within 0.0 s");
  stores[0].set("missing", "here now");
  EXPECT_EQ(stores[1].get("missing", 20s), "here now");
}

TEST_P(StoreInterface, GetTimeoutNamesDepartedRanks) {
  Stores stores(GetParam(), 3);
  Failures seen(stores[1]);
  stores.leave(2);
  EXPECT_EQ(seen.wait_for(1), (Texts{"2: left the job"}));
  EXPECT_EQ(comm_error_of([&] { stores[1].get("missing", 100ms); }),
            "store: key 'missing' was not set within 0.1 s\n  already left the job: rank 2");
}

TEST_P(StoreInterface, ConcurrentAddsAreSummed) {
  Stores stores(GetParam(), 3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      for (int i = 0; i < 50; ++i) stores[r].add("sum", r + 1);
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(stores[0].add("sum", -300), 0);
  EXPECT_EQ(stores[0].get("sum", 20s), "0");
}

TEST_P(StoreInterface, NonIntegerAndOverflowingAddsAreErrors) {
  Stores stores(GetParam(), 1);
  stores[0].set("text", "7x");
  EXPECT_EQ(comm_error_of([&] { stores[0].add("text", 3); }),
            "store: cannot add 3 to key 'text': its value '7x' is not an integer");
  stores[0].set("large", "9223372036854775807");
  EXPECT_EQ(comm_error_of([&] { stores[0].add("large", 1); }),
            "store: adding 1 to key 'large' overflows: its value is 9223372036854775807");
  EXPECT_EQ(stores[0].get("large", 20s), "9223372036854775807");
}

TEST_P(StoreInterface, AnnouncedFailureReachesEveryRankOnce) {
  Stores stores(GetParam(), 4);
  std::vector<std::unique_ptr<Failures>> seen;
  for (int r = 0; r < 4; ++r) seen.push_back(std::make_unique<Failures>(stores[r]));
  stores[1].announce_failure(1, "loss is nan");
  stores[1].announce_failure(1, "again");
  stores[1].announce_failure(3, "third");
  for (auto& s : seen) EXPECT_EQ(s->wait_for(2), (Texts{"1: loss is nan", "3: third"}));
}

TEST_P(StoreInterface, LateCallbackReceivesEarlierFailures) {
  Stores stores(GetParam(), 2);
  Failures first(stores[0]);
  stores[1].announce_failure(1, "early");
  first.wait_for(1);
  Failures late(stores[0]);
  EXPECT_EQ(late.wait_for(1), (Texts{"1: early"}));
}

TEST_P(StoreInterface, RemovedCallbackIsNotCalled) {
  Stores stores(GetParam(), 3);
  Failures removed(stores[0]);
  Failures kept(stores[0]);
  removed.remove();
  stores[1].announce_failure(1, "x");
  EXPECT_EQ(kept.wait_for(1), (Texts{"1: x"}));
  EXPECT_TRUE(removed.wait_for(0).empty());
}

TEST_P(StoreInterface, FailureEndsPendingGet) {
  Stores stores(GetParam(), 3);
  std::string text;
  int peer = -1;
  std::thread waiting([&] { text = comm_error_of([&] { stores[0].get("never", 60s); }, &peer); });
  stores[2].announce_failure(2, "boom");
  waiting.join();
  EXPECT_EQ(text, "store: waiting for key 'never': rank 2 failed: boom");
  EXPECT_EQ(peer, 2);
  stores[1].set("there", "still works");
  EXPECT_EQ(stores[0].get("there", 60s), "still works");
}

TEST_P(StoreInterface, CompareSetRequiresExpectedValue) {
  Stores stores(GetParam(), 2);
  // A missing key matches only an empty `expected`.
  EXPECT_EQ(stores[0].compare_set("key", "old", "new"), "");
  EXPECT_FALSE(stores[1].contains({"key"}));
  EXPECT_EQ(stores[0].compare_set("key", "", "first"), "first");
  EXPECT_EQ(stores[1].compare_set("key", "", "second"), "first");
  EXPECT_EQ(stores[1].compare_set("key", "first", "second"), "second");
  EXPECT_EQ(stores[0].compare_set("key", "first", "third"), "second");
  EXPECT_EQ(stores[0].get("key", 20s), "second");
  stores[0].set("empty", "");
  EXPECT_EQ(stores[1].compare_set("empty", "", "x"), "x");
}

TEST_P(StoreInterface, ConcurrentCompareSetHasOneWinner) {
  Stores stores(GetParam(), 4);
  std::vector<std::string> seen(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      for (int i = 0; i < 10; ++i) {
        seen[static_cast<size_t>(r)] += stores[r].compare_set("round " + std::to_string(i), "", std::to_string(r));
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const std::string& winners : seen) EXPECT_EQ(winners, seen[0]);
}

TEST_P(StoreInterface, CompareSetCompletesPendingGet) {
  Stores stores(GetParam(), 2);
  std::string got;
  std::thread waiting([&] { got = stores[0].get("late", 20s); });
  stores[1].compare_set("late", "", "y");
  waiting.join();
  EXPECT_EQ(got, "y");
}

TEST_P(StoreInterface, WatchIsCalledOnceWithFirstValue) {
  Stores stores(GetParam(), 3);
  std::promise<std::string> now, later;
  td::HookHandle removed = stores[2].watch("key", [](const std::string&) { ADD_FAILURE() << "was removed"; });
  removed.remove();
  td::HookHandle before = stores[1].watch("key", [&](const std::string& value) { later.set_value(value); });
  td::HookHandle other = stores[1].watch("other", [](const std::string&) { ADD_FAILURE() << "another key"; });
  stores[0].offer("key", "first");
  EXPECT_EQ(later.get_future().get(), "first");
  stores[0].offer("key", "second");
  stores[0].set("more", "x");  // after the offer was received
  EXPECT_EQ(stores[1].get("key", 20s), "first");
  td::HookHandle after = stores[0].watch("key", [&](const std::string& value) { now.set_value(value); });
  EXPECT_EQ(now.get_future().get(), "first");
  stores[2].set("key", "third");  // a second call would throw from set_value
  EXPECT_EQ(stores[1].get("key", 20s), "third");
  for (td::HookHandle* handle : {&before, &other, &after}) handle->remove();
}

TEST(PrefixStore, WatchesItsOwnKeys) {
  const auto store = make_memory_store();
  const auto prefixed = make_prefix_store("a/", store);
  std::string seen;
  td::HookHandle handle = prefixed->watch("key", [&](const std::string& value) { seen += value; });
  store->set("key", "outside");
  prefixed->offer("key", "inside");
  EXPECT_EQ(seen, "inside");
  EXPECT_EQ(store->get("a/key", 1s), "inside");
  handle.remove();
}

TEST_P(StoreInterface, DeletedKeysAreMissing) {
  Stores stores(GetParam(), 2);
  EXPECT_FALSE(stores[0].delete_key("key"));
  stores[0].set("key", "1");
  stores[0].set("other", "2");
  EXPECT_TRUE(stores[1].contains({"key", "other"}));
  EXPECT_FALSE(stores[1].contains({"key", "third"}));
  EXPECT_TRUE(stores[1].contains({}));
  EXPECT_EQ(stores[1].num_keys(), 2);
  EXPECT_TRUE(stores[1].delete_key("key"));
  EXPECT_FALSE(stores[0].delete_key("key"));
  EXPECT_FALSE(stores[0].contains({"key"}));
  EXPECT_EQ(stores[0].num_keys(), 1);
  EXPECT_THROW(stores[0].get("key", 10ms), td::CommError);
  EXPECT_EQ(stores[0].add("key", 5), 5);
}

TEST_P(StoreInterface, LargestValueIsStoredLargerIsRejected) {
  const std::string too_long = "store: keys and values of one call have 16777217 bytes; the limit is 16777216";
  constexpr size_t kLimit = 16u << 20;
  Stores stores(GetParam(), 2);
  const std::string largest(kLimit - 5, 'x');
  stores[0].set("large", largest);
  EXPECT_EQ(stores[1].get("large", 60s), largest);
  EXPECT_EQ(td::testing::error_text<td::ValueError>([&] { stores[0].set("larger", largest); }), too_long);
  EXPECT_EQ(td::testing::error_text<td::ValueError>([&] { stores[0].compare_set("large", "y", largest); }), too_long);
  EXPECT_EQ(stores[0].compare_set("swap", "y", std::string(kLimit - 5, 'z')), "");
  EXPECT_EQ(stores[0].compare_set("swap", "", std::string(kLimit - 4, 'z')), std::string(kLimit - 4, 'z'));
  EXPECT_EQ(
      td::testing::error_text<td::ValueError>([&] { stores[1].compare_set("swap", "", std::string(kLimit - 3, 'z')); }),
      too_long);
  EXPECT_EQ(stores[1].num_keys(), 2);
}

TEST_P(StoreInterface, WaitTimeoutNamesAllMissingKeys) {
  Stores stores(GetParam(), 2);
  stores[1].set("b", "");
  EXPECT_EQ(comm_error_of([&] {
              stores[0].wait({"a", "b", "c"}, 50ms);
            }),
            "store: not all of 3 keys were set within 0.1 s\n  missing: 'a' 'c'");
  stores[1].set("a", "1");
  std::thread late([&] { stores[1].set("c", "2"); });
  stores[0].wait({"a", "b", "c"}, 20s);
  late.join();
  stores[0].wait({}, 20s);
}

TEST_P(StoreInterface, TimeoutOfZeroMeansNoDeadline) {
  Stores stores(GetParam(), 2);
  std::string got;
  std::thread waiting([&] { got = stores[0].get("late", 0ms); });
  std::thread waiting_too([&] { stores[0].wait({"late"}, 0ms); });
  EXPECT_THROW(stores[1].get("other", 50ms), td::CommError);
  stores[1].set("late", "y");
  waiting.join();
  waiting_too.join();
  EXPECT_EQ(got, "y");
}

TEST_P(StoreInterface, GetFromFailsOnlyForNamedRanks) {
  Stores stores(GetParam(), 3);
  Failures seen(stores[0]);
  stores[2].announce_failure(2, "boom");
  seen.wait_for(1);
  int peer = -1;
  EXPECT_EQ(comm_error_of(
                [&] {
                  stores[0].get_from("key", {0, 2}, 60s);
                },
                &peer),
            "store: waiting for key 'key': rank 2 failed: boom");
  EXPECT_EQ(peer, 2);
  // Rank 2 is not involved in the exchange of ranks 0 and 1.
  std::string got;
  std::thread waiting([&] { got = stores[0].get_from("key", {0, 1}, 60s); });
  EXPECT_EQ(comm_error_of(
                [&] {
                  stores[1].get_from("other", {0, 1}, 30ms);
                },
                &peer),
            "store: key 'other' was not set within 0.0 s\n  already left the job: rank 2");
  EXPECT_EQ(peer, -1);
  stores[1].set("key", "value");
  waiting.join();
  EXPECT_EQ(got, "value");
}

TEST_P(StoreInterface, PrefixStoresSeparateKeys) {
  Stores stores(GetParam(), 2);
  const std::shared_ptr<Store> whole(&stores[0], [](Store*) {});
  const auto a = make_prefix_store("a/", whole);
  const auto b = make_prefix_store("b/", make_prefix_store("c/", whole));
  a->set("key", "1");
  EXPECT_EQ(b->compare_set("key", "", "2"), "2");
  EXPECT_EQ(a->add("key", 3), 4);
  EXPECT_EQ(a->get("key", 20s), "4");
  EXPECT_EQ(stores[1].get("c/b/key", 20s), "2");
  EXPECT_TRUE(b->contains({"key"}));
  EXPECT_FALSE(b->contains({"key", "b/key"}));
  EXPECT_TRUE(b->delete_key("key"));
  EXPECT_FALSE(stores[1].contains({"c/b/key"}));
  EXPECT_EQ(a->num_keys(), 1);
  EXPECT_EQ(comm_error_of([&] { a->get("none", 10ms); }), "store: key 'a/none' was not set within 0.0 s");
  Failures seen(*b);
  stores[1].announce_failure(1, "x");
  EXPECT_EQ(seen.wait_for(1), (Texts{"1: x"}));
  EXPECT_THROW(make_prefix_store("x", nullptr), td::ValueError);
}

TEST(TcpStore, ClosedConnectionIsReportedAsDeath) {
  const std::string token = wire::random_token();
  StoreServer server({.token = token, .world_size = 3});
  server.start();
  TcpStore survivor({.port = server.port(), .token = token, .rank = 0, .world_size = 3});
  Failures seen(survivor);
  { TcpStore dying({.port = server.port(), .token = token, .rank = 2, .world_size = 3}); }
  EXPECT_EQ(seen.wait_for(1), (Texts{"2: died (its connection closed)"}));
  EXPECT_EQ(comm_error_of([&] { survivor.get("x", 60s); }),
            "store: waiting for key 'x': rank 2 died (its connection closed)");
}

TEST(TcpStore, LostHostIsReportedAndFailsCalls) {
  Stores stores(Kind::kTcp, 2);
  Failures seen(stores[1]);
  std::string text;
  std::thread waiting([&] { text = comm_error_of([&] { stores[1].get("never", 60s); }); });
  stores.lose_host();
  waiting.join();
  const Texts texts = seen.wait_for(1);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(texts[0].starts_with("-1: the connection to the store's host 127.0.0.1:")) << texts[0];
  EXPECT_NE(text.find("the connection to "), std::string::npos) << text;
  EXPECT_NE(comm_error_of([&] { stores[1].set("a", "b"); }).find("was lost"), std::string::npos);
}

TEST(TcpStore, RefusedConnectionIsAnError) {
  int port = 0;
  {
    StoreServer server({.token = wire::random_token(), .world_size = 1});
    port = server.port();
  }
  EXPECT_EQ(comm_error_of([&] { TcpStore({.port = port, .token = wire::random_token(), .connect_timeout = 30ms}); }),
            "store: cannot connect to 127.0.0.1:" + std::to_string(port) + " within 30 ms: Connection refused");
}

TEST(TcpStore, RejectsMismatchedRanksAndTokens) {
  const std::string token = wire::random_token();
  StoreServer server({.token = token, .world_size = 2});
  server.start();
  const std::string host = "store: 127.0.0.1:" + std::to_string(server.port());
  const auto join = [&](const std::string& shown, int rank, int world_size) {
    return comm_error_of(
        [&] { TcpStore({.port = server.port(), .token = shown, .rank = rank, .world_size = world_size}); });
  };
  TcpStore first({.port = server.port(), .token = token, .rank = 1, .world_size = 2});
  EXPECT_EQ(join(token, 1, 2), host + " rejected rank 1: rank 1 has already joined");
  EXPECT_EQ(join(token, 2, 3), host + " rejected rank 2: this job has 2 ranks, but world_size is 3");
  EXPECT_EQ(join(token, -1, 2), host + " rejected rank -1: rank -1 is not in [0, 2)");
  EXPECT_EQ(join(wire::random_token(), 0, 2), host +
                                                  " closed the connection of rank 0 before it joined\n"
                                                  "  another job or program uses this port, or TANDEM_TOKEN is wrong");
  first.set("a", "undisturbed");
  EXPECT_EQ(first.get("a", 20s), "undisturbed");
}

}  // namespace
