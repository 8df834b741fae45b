#include <tandem/distributed/rendezvous/store_server.h>

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/tcp_store.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;
using wire::FrameType;
using wire::PayloadWriter;

/// A client of the store that is not a rank.
class Stranger {
 public:
  explicit Stranger(int port) : fd_(connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + 20s)) {}

  /// Sends as much as the host reads; the host may close the connection at any time.
  void send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      pollfd ready{fd_.get(), POLLOUT, 0};
      if (poll(&ready, 1, 20000) <= 0) return;
      const ssize_t n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  /// Whether the host closes the connection without a reply.
  bool is_dropped() {
    pollfd ready{fd_.get(), POLLIN, 0};
    char byte;
    // End of file, or a reset because the host had unread data.
    return poll(&ready, 1, 20000) > 0 && recv(fd_.get(), &byte, 1, 0) <= 0;
  }

  /// Whether the host replies.
  bool is_answered() {
    pollfd ready{fd_.get(), POLLIN, 0};
    char byte;
    return poll(&ready, 1, 20000) > 0 && recv(fd_.get(), &byte, 1, 0) == 1;
  }
  void close() { fd_.reset(); }

 private:
  FileDescriptor fd_;
};

class TcpStoreServer : public testing::Test {
 protected:
  void SetUp() override {
    server_.start();
    zero_ = join(0);
  }

  std::shared_ptr<TcpStore> join(int rank) {
    return std::make_shared<TcpStore>(
        TcpStoreOptions{.port = server_.port(), .token = token_, .rank = rank, .world_size = 2});
  }
  std::string hello(const std::string& token, int rank = 1) const {
    return wire::encode(FrameType::kHello, 0, PayloadWriter().text(token).number(rank).number(2).take());
  }
  static std::string header(uint32_t magic, uint32_t type, uint32_t length) {
    const wire::FrameHeader h{magic, type, 0, length};
    return std::string(reinterpret_cast<const char*>(&h), sizeof(h));
  }
  /// The job is not affected: both ranks can use the store.
  void expect_in_order() {
    auto one = join(1);
    zero_->set("key", "value");
    EXPECT_EQ(one->get("key", 20s), "value");
    EXPECT_FALSE(server_.failures().first_failure());
    one->leave();
  }

  const std::string token_ = wire::random_token();
  StoreServer server_{{.token = token_, .world_size = 2}};
  std::shared_ptr<TcpStore> zero_;
};

TEST_F(TcpStoreServer, GarbageConnectionIsDropped) {
  Stranger http(server_.port());
  http.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(http.is_dropped());
  expect_in_order();
}

TEST_F(TcpStoreServer, WrongTokenIsDroppedWithoutReply) {
  for (const std::string& token : {wire::random_token(), std::string(), token_.substr(1), token_ + "x"}) {
    Stranger stranger(server_.port());
    stranger.send(hello(token));
    EXPECT_TRUE(stranger.is_dropped());
  }
  std::string almost = token_;
  almost.back() = static_cast<char>(almost.back() ^ 1);
  Stranger stranger(server_.port());
  stranger.send(hello(almost));
  EXPECT_TRUE(stranger.is_dropped());
  expect_in_order();
}

TEST_F(TcpStoreServer, OversizedFrameIsDroppedAtHeader) {
  for (const uint32_t length : {wire::kMaxHelloPayload + 1, wire::kMaxPayload, 0xffffffffu}) {
    Stranger stranger(server_.port());
    stranger.send(header(wire::kMagic, static_cast<uint32_t>(FrameType::kHello), length));
    EXPECT_TRUE(stranger.is_dropped());
  }
  expect_in_order();
}

TEST_F(TcpStoreServer, FirstFrameMustBeHello) {
  const std::string payload = PayloadWriter().text("key").text("stolen").take();
  for (uint32_t type = 0; type < static_cast<uint32_t>(FrameType::kLast) + 3; ++type) {
    if (type == static_cast<uint32_t>(FrameType::kHello)) continue;
    Stranger stranger(server_.port());
    stranger.send(header(wire::kMagic, type, static_cast<uint32_t>(payload.size())) + payload);
    EXPECT_TRUE(stranger.is_dropped()) << type;
  }
  EXPECT_THROW(zero_->get("key", 10ms), td::CommError);
  expect_in_order();
}

TEST_F(TcpStoreServer, SilentAndSlowConnectionsAreDropped) {
  StoreServer impatient({.token = token_, .world_size = 2, .hello_timeout = 300ms});
  impatient.start();
  Stranger silent(impatient.port());
  Stranger slow(impatient.port());
  slow.send(hello(token_).substr(0, 20));
  EXPECT_TRUE(silent.is_dropped());
  EXPECT_TRUE(slow.is_dropped());
}

TEST_F(TcpStoreServer, IdleConnectionsDoNotBlockRanks) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (size_t i = 0; i < 2 * StoreServer::kMaxStrangers + 2; ++i)
    crowd.push_back(std::make_unique<Stranger>(server_.port()));
  expect_in_order();
  EXPECT_TRUE(crowd.front()->is_answered());  // it was disconnected; a rank would retry
}

TEST_F(TcpStoreServer, ConnectionFloodDoesNotBlockRanks) {
  std::atomic<bool> stop{false};
  std::atomic<int> visits{0};
  std::vector<std::thread> flood;
  for (int i = 0; i < 3; ++i) {
    flood.emplace_back([&] {
      std::vector<std::unique_ptr<Stranger>> crowd;
      for (; !stop; ++visits) {
        crowd.push_back(std::make_unique<Stranger>(server_.port()));
        if (crowd.size() > 100) crowd.clear();
      }
    });
  }
  const int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    auto one = join(1);
    one->set(std::to_string(i), "x");
    EXPECT_EQ(zero_->get(std::to_string(i), 20s), "x");
    one->leave();
    zero_->leave();
    zero_ = join(0);
  }
  stop = true;
  for (std::thread& thread : flood) thread.join();
  EXPECT_GT(visits, kTimes);
}

/// While in scope, this process cannot open further descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const FileDescriptor next(dup(0));
    const rlimit limit = {static_cast<rlim_t>(next.get()), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_F(TcpStoreServer, DescriptorExhaustionDelaysOnlyNewConnections) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(server_.port()));
  const FileDescriptor waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string bytes = hello(token_);
  {
    const NoDescriptors none;
    ASSERT_LT(dup(0), 0);
    ASSERT_EQ(connect(waiting.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(waiting.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(zero_->add("key", 1), i + 1);
    EXPECT_EQ(recv(waiting.get(), bytes.data(), 1, MSG_DONTWAIT), -1);
  }
  EXPECT_EQ(recv(waiting.get(), bytes.data(), 1, 0), 1);  // the welcome
}

TEST_F(TcpStoreServer, CorruptHelloDoesNotDisturbJob) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello(wire::random_token());
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    Stranger stranger(server_.port());
    stranger.send(bytes);
  }
  expect_in_order();
}

TEST_F(TcpStoreServer, ProtocolViolationIsReportedAsFailure) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {header(wire::kMagic, static_cast<uint32_t>(FrameType::kSet), 4) + "abcd",
       "store: a frame is shorter than its contents"},
      {header(wire::kMagic, static_cast<uint32_t>(FrameType::kGoodbye), 4) + "abcd",
       "store: a frame is longer than its contents"},
      {header(wire::kMagic, static_cast<uint32_t>(FrameType::kSet), wire::kMaxPayload + 1),
       "store: received a frame of 16777281 bytes; at most 16777280"},
      {header(wire::kMagic + 1, static_cast<uint32_t>(FrameType::kSet), 0), "store: received data that is not a frame"},
      {header(wire::kMagic, static_cast<uint32_t>(FrameType::kWelcome), 0), "store: a rank sent a frame of type 2"},
      {wire::encode(FrameType::kAnnounceFailure, 1, PayloadWriter().number(5).text("x").take()),
       "store: received a failure of rank 5, which is not in this job"},
      {wire::encode(FrameType::kSet, 1, PayloadWriter().number(-3).take()),
       "store: a frame contains a string of negative length"},
  };
  for (const auto& [bytes, text] : cases) {
    StoreServer server({.token = token_, .world_size = 2});
    server.start();
    Stranger rank(server.port());
    rank.send(hello(token_) + bytes);
    EXPECT_FALSE(rank.is_dropped());  // the welcome
    server.wait_until_empty(20s);
    const auto failure = server.failures().first_failure();
    ASSERT_TRUE(failure) << text;
    EXPECT_EQ(failure->rank, 1);
    EXPECT_EQ(failure->reason, "violated the store's protocol: " + text);
  }
}

TEST_F(TcpStoreServer, AllRanksCanConnectAtOnce) {
  const int n = 2 * static_cast<int>(StoreServer::kMaxStrangers);
  StoreServer large({.token = token_, .world_size = n});
  large.start();
  std::vector<std::unique_ptr<Stranger>> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(std::make_unique<Stranger>(large.port()));
  for (int r = 0; r < n; ++r) {
    ranks[static_cast<size_t>(r)]->send(
        wire::encode(FrameType::kHello, 0, PayloadWriter().text(token_).number(r).number(n).take()));
  }
  for (const auto& rank : ranks) EXPECT_FALSE(rank->is_dropped());  // the welcome
}

TEST_F(TcpStoreServer, SlowRankDoesNotDelayOthers) {
  Stranger slow(server_.port());
  const std::string bytes =
      hello(token_) + wire::encode(FrameType::kSet, 1, PayloadWriter().text("slow").text("value").take());
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(zero_->contains({"slow"}));
    slow.send(bytes.substr(i, 1));
  }
  EXPECT_EQ(zero_->get("slow", 20s), "value");
}

TEST_F(TcpStoreServer, RankThatDoesNotReadIsDropped) {
  zero_->set("large", std::string(15u << 20, 'x'));
  Stranger unread(server_.port());
  unread.send(hello(token_));
  // Replies are buffered on the host, at most 64 MiB.
  for (uint32_t i = 0; i < 8; ++i) {
    unread.send(wire::encode(FrameType::kGet, i, PayloadWriter().text("large").number(1).take()));
  }
  try {
    zero_->get("never", 60s);
    FAIL() << "rank 1 is not missed";
  } catch (const td::CommError& e) {
    EXPECT_STREQ(e.what(),
                 "store: waiting for key 'never': rank 1 does not read data from its connection to the store");
  }
}

TEST_F(TcpStoreServer, CorruptFramesAffectOnlyTheirSender) {
  std::mt19937 random(11);
  for (int i = 0; i < 50; ++i) {
    StoreServer server({.token = token_, .world_size = 2});
    server.start();
    TcpStore other({.port = server.port(), .token = token_, .rank = 0, .world_size = 2});
    Stranger rank(server.port());
    std::string bytes = wire::encode(FrameType::kCompareSet, 1, PayloadWriter().text("a").text("").text("b").take()) +
                        wire::encode(FrameType::kCheck, 2, PayloadWriter().number(2).text("a").text("b").take()) +
                        wire::encode(FrameType::kDeleteKey, 3, PayloadWriter().text("c").take());
    for (int flips = 0; flips < 4; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    rank.send(hello(token_) + bytes);
    EXPECT_FALSE(rank.is_dropped());  // the welcome
    other.set("key", "value");
    EXPECT_EQ(other.get_from("key", {0}, 20s), "value");
  }
}

TEST_F(TcpStoreServer, RejoiningRanksFindEmptyStore) {
  for (int round = 0; round < 3; ++round) {
    auto one = join(1);
    zero_->set("key", "value");
    EXPECT_EQ(one->get("key", 20s), "value");
    zero_->leave();
    one->leave();
    zero_ = join(0);
    EXPECT_FALSE(zero_->contains({"key"}));
    EXPECT_TRUE(zero_->failures().events().empty());
  }
  EXPECT_TRUE(server_.has_joined(1));
}

TEST_F(TcpStoreServer, LateCloseAfterRejoinIsNotAFailure) {
  Stranger one(server_.port());  // rank 1, which leaves but does not close its connection yet
  one.send(hello(token_) + wire::encode(FrameType::kGoodbye, 1, ""));
  ASSERT_TRUE(one.is_answered());
  const auto left = zero_;
  left->leave();
  zero_ = join(0);
  auto again = join(1);
  one.close();
  again->set("key", "value");
  EXPECT_EQ(zero_->get("key", 20s), "value");
  EXPECT_TRUE(zero_->failures().events().empty());
}

TEST_F(TcpStoreServer, RejoinWaitsUntilAllRanksLeft) {
  join(1)->leave();
  try {
    TcpStore({.port = server_.port(), .token = token_, .rank = 1, .world_size = 2, .connect_timeout = 2s});
    FAIL() << "rank 0 has not left";
  } catch (const td::CommError& e) {
    EXPECT_EQ(e.what(), "store: 127.0.0.1:" + std::to_string(server_.port()) +
                            " rejected rank 1: rank 1 has already joined and left; other ranks have not left yet");
  }
  std::shared_ptr<TcpStore> again;
  std::thread joins([&] { again = join(1); });
  zero_->set("still", "here");
  zero_->leave();
  joins.join();
  EXPECT_FALSE(again->contains({"still"}));
}

TEST_F(TcpStoreServer, RejoinAfterFailureIsRejected) {
  auto one = join(1);
  zero_->announce_failure(0, "loss is nan");
  one->leave();
  try {
    join(1);
    FAIL() << "the job has failed";
  } catch (const td::CommError& e) {
    EXPECT_EQ(e.what(), "store: 127.0.0.1:" + std::to_string(server_.port()) +
                            " rejected rank 1: rank 1 has already joined\n  rank 0: loss is nan");
  }
}

TEST_F(TcpStoreServer, ReportedFailuresReachRanks) {
  std::promise<std::string> reported;
  const auto handle = zero_->on_failure(
      [&](int rank, const std::string& reason) { reported.set_value(std::to_string(rank) + " " + reason); });
  EXPECT_TRUE(server_.has_joined(0));
  EXPECT_FALSE(server_.has_joined(1));
  server_.report({1, RankEnd::kDied, "died (exit status 3) before it joined"});
  EXPECT_EQ(reported.get_future().get(), "1 died (exit status 3) before it joined");
}

TEST_F(TcpStoreServer, FailureSentBeforeExitIsItsCause) {
  Stranger one(server_.port());
  one.send(hello(token_));
  ASSERT_TRUE(one.is_answered());
  one.send(wire::encode(FrameType::kAnnounceFailure, 1, PayloadWriter().number(1).text("boom").take()));
  server_.report_exit(1, false, "exit status 1");
  EXPECT_EQ(server_.failures().first_failure().value().reason, "boom");
}

TEST(Socket, ConnectionToItselfIsRecognized) {
  const FileDescriptor alone(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(alone.get(), any, length), 0);
  EXPECT_FALSE(is_connected_to_itself(alone.get()));
  ASSERT_EQ(getsockname(alone.get(), any, &length), 0);
  ASSERT_EQ(connect(alone.get(), any, length), 0);
  EXPECT_TRUE(is_connected_to_itself(alone.get()));

  const FileDescriptor listener = listen_on("127.0.0.1", 0);
  const FileDescriptor client =
      connect_to("127.0.0.1", local_port(listener.get()), std::chrono::steady_clock::now() + 20s);
  EXPECT_FALSE(is_connected_to_itself(client.get()));
}

TEST(Socket, NamesMayResolveLate) {
  EXPECT_EQ(listening_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(listening_address("no such name"), "");
}

TEST(TcpStoreServerCreation, PortInUseIsAnError) {
  StoreServer server({.token = wire::random_token()});
  try {
    StoreServer second({.port = server.port(), .token = wire::random_token()});
    FAIL() << "two listen on one port";
  } catch (const td::IoError& e) {
    EXPECT_EQ(e.what(),
              "store: cannot listen on 127.0.0.1:" + std::to_string(server.port()) + ": Address already in use");
  }
}

TEST(TcpStoreServerCreation, TokenOfWrongSizeIsRejected) {
  EXPECT_THROW(StoreServer({.token = "short"}), td::ValueError);
}

}  // namespace
