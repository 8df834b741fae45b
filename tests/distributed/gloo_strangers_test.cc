// Others than the peers at the ports of a gloo group that comes together, and a peer that sends nonsense once it has: the
// group is as without them, or fails with a clean error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/distributed/gloo/gloo_backend.h>
#include <tandem/distributed/gloo/gloo_sockets.h>
#include <tandem/distributed/store/forwarding_store.h>
#include <tandem/distributed/store/socket.h>
#include <tandem/distributed/store/wire.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem::inline v0::distributed {
namespace {

using testing::MatchesRegex;

constexpr int kWorld = 3;

/// A store that shows what a rank sets before the others see it, and changes what the rank gets.
class ShownStore final : public ForwardingStore {
 public:
  using Show = std::function<void(const std::string& key, const std::string& value)>;
  using Change = std::function<std::string(const std::string& key, const std::string& value)>;
  ShownStore(std::shared_ptr<Store> store, Show show, Change change)
      : ForwardingStore(std::move(store)), show_(std::move(show)), change_(std::move(change)) {}

  void set(const std::string& key, const std::string& value) override {
    if (show_) show_(key, value);
    ForwardingStore::set(key, value);
  }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    const std::string value = ForwardingStore::get_from(key, ranks, timeout);
    return change_ ? change_(key, value) : value;
  }

 private:
  const Show show_;
  const Change change_;
};

/// An address as it is in the store.
std::vector<char> from_hex(const std::string& hex) {
  std::vector<char> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// Connects to everything that it is shown, and keeps the connections.
class Stranger {
 public:
  explicit Stranger(std::string says) : says_(std::move(says)) {}

  /// `addresses`: of a rank's listeners, as they are in the store.
  void visit(const std::string& addresses) {
    for (size_t begin = 0; begin < addresses.size();) {
      const size_t end = std::min(addresses.find(' ', begin), addresses.size());
      if (end - begin > 1) visit_one(addresses.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  int visits() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }
  /// Ends all connections.
  void go() {
    std::lock_guard lock(mutex_);
    connections_.clear();
  }

 private:
  void visit_one(const std::string& hex) {
    sockaddr_storage address = {};
    const std::vector<char> bytes = from_hex(hex);
    std::memcpy(&address, bytes.data(), std::min(sizeof(address), bytes.size()));
    FileDescriptor fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return;
    send(fd.get(), says_.data(), says_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    std::lock_guard lock(mutex_);
    connections_.push_back(std::move(fd));
  }

  const std::string says_;
  mutable std::mutex mutex_;
  std::vector<FileDescriptor> connections_;
};

using Hooks = std::function<std::shared_ptr<Store>(const ProcessGroupOptions& options)>;

/// Ranks that join and then add up 1, 2, 3; returns their errors.
std::vector<std::string> join_and_add(const Hooks& hooks, std::chrono::milliseconds timeout = {}) {
  ProcessGroupOptions common;
  if (timeout.count() > 0) common.timeout = timeout;
  const MakeBackend make = [&](ProcessGroupOptions options) {
    options.store = hooks(options);
    return gloo::make_gloo_backend(options);
  };
  return try_backend_ranks(
      kWorld, make,
      [](Backend& backend, int rank) {
        std::vector<float> x(50000, static_cast<float>(rank + 1));
        Collective collective;
        collective.kind = CollectiveKind::kAllReduce;
        collective.seq = 1;
        collective.num_elements = static_cast<int64_t>(x.size());
        collective.input = reinterpret_cast<std::byte*>(x.data());
        collective.output = reinterpret_cast<std::byte*>(x.data());
        run_collective(backend, collective);
        for (const float value : x) TANDEM_CHECK(StateError, value == 6, "sum: ", value);
      },
      common);
}

Hooks show(std::function<void(int rank, const std::string& key, const std::string& value)> f) {
  return [f = std::move(f)](const ProcessGroupOptions& options) {
    const int rank = options.rank;
    return std::make_shared<ShownStore>(
        options.store, [f, rank](const std::string& key, const std::string& value) { f(rank, key, value); }, nullptr);
  };
}

bool has(const std::string& key, const std::string& part) { return key.find(part) != std::string::npos; }

const std::string kGarbage(5000, '\xa5');

TEST(GlooStrangers, WhoComesFirstDoesNotKeepTheRanksApart) {
  for (const std::string& says : {std::string(), kGarbage, std::string(1, '\0')}) {
    for (const bool stays : {true, false}) {
      Stranger stranger(says);
      const std::vector<std::string> errors =
          join_and_add(show([&](int, const std::string& key, const std::string& value) {
            if (!has(key, "addresses0/")) return;
            stranger.visit(value);
            if (!stays) stranger.go();
          }));
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      if (stays) {
        EXPECT_EQ(stranger.visits(), kWorld * (kWorld - 1));
      }
    }
  }
}

TEST(GlooStrangers, OneAtASinglePortIsEnough) {
  Stranger stranger(kGarbage);
  const std::vector<std::string> errors =
      join_and_add(show([&](int rank, const std::string& key, const std::string& value) {
        if (rank == 1 && has(key, "addresses0/")) stranger.visit(value.substr(0, value.find(' ')));
      }));
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(GlooStrangers, ThePortsAreClosedOnceTheRanksAreTogether) {
  Stranger stranger(kGarbage);
  std::mutex mutex;
  std::vector<std::string> addresses;
  const std::vector<std::string> errors = join_and_add(show([&](int, const std::string& key, const std::string& value) {
    std::lock_guard lock(mutex);
    if (has(key, "addresses0/")) addresses.push_back(value);
    if (has(key, "mapped/")) {
      for (const std::string& list : addresses) stranger.visit(list);
    }
  }));
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(stranger.visits(), 0);
}

TEST(GlooStrangers, OneThatComesEveryTimeIsAnError) {
  Stranger stranger(kGarbage);
  const std::vector<std::string> errors = join_and_add(show([&](int, const std::string& key, const std::string& value) {
    if (has(key, "addresses")) stranger.visit(value);
  }));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                MatchesRegex(str("\\[rank ", rank, " of 3\\] group 'default': the ranks cannot connect over lo ",
                                 "\\(127\\.0\\.0\\.1\\)\n  rank [012]: [^\n]+")));
  }
  EXPECT_EQ(stranger.visits(), 3 * kWorld * (kWorld - 1));  // three attempts
}

TEST(GlooStrangers, AWrongTokenIsAnError) {
  const std::vector<std::string> errors =
      join_and_add([](const ProcessGroupOptions& options) -> std::shared_ptr<Store> {
        if (options.rank != 1) return options.store;
        return std::make_shared<ShownStore>(
            options.store, nullptr, [](const std::string& key, const std::string& value) {
              return has(key, "token") ? wire::token_to_hex(wire::random_token()) : value;
            });
      });
  // Who sees it closes its connections, maybe before its own greeting was read.
  int seen = 0;
  for (int rank = 0; rank < kWorld; ++rank) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_THAT(error, MatchesRegex(str("\\[rank ", rank, " of 3\\] group 'default': rank ", rank == 1 ? "[02]" : "1",
                                        ": [^\n]+")));
    seen += has(error, ": gloo: received a greeting with a wrong token");
  }
  EXPECT_GE(seen, 1);
}

TEST(GlooStrangers, ARankThatGoesWhileJoiningIsNamed) {
  for (const std::string where : {"addresses0/", "ends0/", "verdict0/", "mapped/"}) {
    const std::vector<std::string> errors = join_and_add([&](const ProcessGroupOptions& options) {
      const std::shared_ptr<Store> store = options.store;
      return std::make_shared<ShownStore>(
          store,
          [store, where, rank = options.rank](const std::string& key, const std::string&) {
            if (rank != 2 || !has(key, where)) return;
            store->announce_failure(2, "no disk");
            throw StateError("no disk");
          },
          nullptr);
    });
    for (const int rank : {0, 1}) {
      EXPECT_EQ(errors[static_cast<size_t>(rank)],
                str("[rank ", rank, " of 3] group 'default': did not come together\n  rank 2: no disk"));
    }
  }
}

TEST(GlooStrangers, ARankThatGoesBeforeItGreetsIsNamedInOurWords) {
  const std::vector<std::string> errors =
      join_and_add([](const ProcessGroupOptions& options) -> std::shared_ptr<Store> {
        if (options.rank != 2) return options.store;
        return std::make_shared<ShownStore>(options.store, nullptr,
                                            [](const std::string& key, const std::string& value) {
                                              if (has(key, "mapped/")) throw StateError("no disk");
                                              return value;
                                            });
      });
  int named = 0;
  for (const int rank : {0, 1}) {
    // The other may have found it out before, and gone too.
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_THAT(error, MatchesRegex(str("\\[rank ", rank, " of 3\\] group 'default': rank [012]: ",
                                        "(died \\(its connection closed\\)|left the group)")));
    named += has(error, "rank 2: died (its connection closed)");
  }
  EXPECT_GE(named, 1);
}

TEST(GlooStrangers, ConnectionsThatDoNotComeAboutEndAtTheDeadline) {
  // All take themselves for the lower end of each pair, which waits for the higher one.
  const std::vector<std::string> errors = join_and_add(
      [](const ProcessGroupOptions& options) {
        return std::make_shared<ShownStore>(
            options.store, nullptr, [](const std::string& key, const std::string& value) {
              std::string changed = value;
              constexpr size_t kPort = 4;  // of its digits in a sockaddr_in
              for (size_t at = 0; has(key, "addresses0/") && at < value.size(); at = value.find(' ', at) + 1) {
                if (value[at] != '-') changed.replace(at + kPort, 4, "ffff");
                if (value.find(' ', at) == std::string::npos) break;
              }
              return changed;
            });
      },
      std::chrono::milliseconds(3000));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              str("[rank ", rank, " of 3] group 'default': did not come together within 3.0 s\n  rank ",
                  rank == 0 ? 1 : 0, ": the connection over lo (127.0.0.1) did not come about"));
  }
}

// --- a peer ---

/// The second record of rank 1 of two, as Gloo writes it: after its own header.
std::string second_record(const std::string& record) {
  constexpr gloo::Tuning kTuning;
  constexpr size_t kBuffer = static_cast<size_t>(kTuning.records + kTuning.slots) + 1;  // as Link numbers them
  const size_t header[6] = {sizeof(header) + record.size(), 0, kBuffer, 0, record.size(), 0};
  return std::string(reinterpret_cast<const char*>(header), sizeof(header)) + record;
}

/// A record that follows the greeting, but for a change.
std::string record_of(gloo::FrameType type, const std::function<void(gloo::FrameHeader&)>& change) {
  gloo::FrameHeader header;
  header.type = static_cast<uint16_t>(type);
  header.seq = 1;
  header.arrived_records = 1;
  change(header);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

/// What two ranks throw when rank 1 has sent this.  `together`: they leave when both have thrown.
std::vector<Thrown> after_record(const std::string& record, bool together) {
  std::mutex mutex;
  std::string ends[2];  // of the connection, by rank
  const auto note_ends = [&](const std::string& key, const std::string& value) {
    std::lock_guard lock(mutex);
    if (has(key, "ends0/0")) ends[0] = value.substr(value.find(' ') + 1);
    if (has(key, "ends0/1")) ends[1] = value.substr(0, value.find(' '));
  };
  std::latch greeted(2);
  std::latch ended(2);
  std::vector<Thrown> thrown(2);
  const ThreadRanks ranks{.store = std::make_shared<ShownStore>(make_memory_store(), note_ends, nullptr),
                          .backend = "gloo"};
  ranks.run([&](ProcessGroup& g) {
    greeted.arrive_and_wait();
    if (g.rank() == 1) {
      const FileDescriptor connection = gloo::find_connection(from_hex(ends[1]), from_hex(ends[0]));
      const std::string bytes = second_record(record);
      EXPECT_EQ(send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }
    // Sends nothing of its own.
    thrown[static_cast<size_t>(g.rank())] = thrown_by([&] { g.recv(zeros({3}), 1 - g.rank()); });
    if (together) ended.arrive_and_wait();
  });
  return thrown;
}

TEST(GlooPeer, OneThatSendsNonsenseIsAnErrorOnBothSides) {
  using gloo::FrameHeader;
  using gloo::FrameType;
  struct Case {
    std::string record;
    const char* error;
  };
  const Case cases[] = {
      {kGarbage, "that is none: wrong magic number"},
      {record_of(FrameType::kOffer, [](FrameHeader& h) { h.length = 1 << 20; }), "that is longer than a record"},
      {record_of(FrameType::kData, [](FrameHeader& h) { h.data_length = 1 << 20; }), "that is longer than a slot"},
      {record_of(FrameType::kOffer, [](FrameHeader& h) { h.seq = 0; }), "out of turn"},
      {record_of(FrameType::kOffer, [](FrameHeader& h) { h.arrived_records = 1000; }),
       "that acknowledges what was not sent"},
  };
  for (const Case& c : cases) {
    const std::vector<Thrown> thrown = after_record(c.record, true);
    for (int rank = 0; rank < 2; ++rank) {
      const Thrown& t = thrown[static_cast<size_t>(rank)];
      EXPECT_EQ(t.text, str("[rank ", rank, " of 2] recv from rank ", 1 - rank,
                            " tag 0 failed\n  rank 1: gloo: received a frame ", c.error));
      EXPECT_EQ(t.peer, 1);
    }
  }
}

TEST(GlooPeer, OneThatSendsNonsenseHearsOfItThoughTheOtherLeavesAtOnce) {
  // The other waits for a moment only until it is written: a machine that stands still may be too slow for that.
  constexpr int kTimes = 8;
  int blamed = 0;
  for (int i = 0; i < kTimes; ++i) blamed += after_record(kGarbage, false)[1].peer == 1;
  EXPECT_GE(blamed, kTimes - 2);
}

}  // namespace
}  // namespace tandem::inline v0::distributed
