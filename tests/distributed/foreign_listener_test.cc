// Another program listens at the address of the store.
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch/job_store.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/tcp_store.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tests/support/error_text.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;
using wire::FrameType;
using wire::PayloadWriter;

/// Accepts connections and calls `act` for each; keeps a connection open if it returns true.
class Listener {
 public:
  explicit Listener(std::function<bool(int fd)> act)
      : fd_(listen_on("127.0.0.1", 0)), act_(std::move(act)), thread_([this] { run(); }) {}
  ~Listener() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return local_port(fd_.get()); }

 private:
  void run() {
    std::vector<FileDescriptor> kept;
    while (!stop_) {
      pollfd ready{fd_.get(), POLLIN, 0};
      if (poll(&ready, 1, 10) <= 0) continue;
      FileDescriptor accepted(accept(fd_.get(), nullptr, nullptr));
      if (accepted && act_(accepted.get())) kept.push_back(std::move(accepted));
    }
  }

  const FileDescriptor fd_;
  const std::function<bool(int fd)> act_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Replies with `bytes` after the first data arrived.
std::function<bool(int)> answer(const std::string& bytes) {
  return [bytes](int fd) {
    char request[4096];
    if (recv(fd, request, sizeof(request), 0) < 0) return false;
    return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  };
}

std::string reply(const wire::Frame& request, const std::string& text) {
  return wire::encode(FrameType::kReply, request.id, PayloadWriter().number(0).text(text).take());
}

/// Welcomes a rank, and replies to its requests with the bytes that `respond` returns, until it disconnects.
std::function<bool(int)> serve(std::function<std::string(const wire::Frame&)> respond) {
  return [respond = std::move(respond)](int fd) {
    wire::FrameBuffer in;
    for (;;) {
      while (const auto frame = in.next(wire::kMaxPayload)) {
        const bool joins = frame->type == FrameType::kHello;
        const std::string bytes = joins ? wire::encode(FrameType::kWelcome, 0, "") : respond(*frame);
        if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return false;
      }
      char request[4096];
      const ssize_t n = recv(fd, request, sizeof(request), 0);
      if (n <= 0) return false;
      in.append(request, static_cast<size_t>(n));
    }
  };
}

/// The error of rank 1 of 2; the address is replaced by HOST.
std::string error_at(int port, std::chrono::milliseconds timeout) {
  RankEnvironment env;
  env.rank = 1;
  env.world_size = 2;
  env.store_host = "127.0.0.1";
  env.store_port = port;
  env.token = wire::random_token();
  std::string text = "no CommError";
  try {
    join_job_store(env, timeout);
  } catch (const td::CommError& e) {
    text = e.what();
  }
  const std::string address = "127.0.0.1:" + std::to_string(port);
  for (size_t at = text.find(address); at != std::string::npos; at = text.find(address)) {
    text.replace(at, address.size(), "HOST");
  }
  return text;
}

const char* const kAdvice = "\n  another program listens on this port; choose another one (MASTER_PORT)";

TEST(TcpStore, HttpServerIsReportedAsForeign) {
  const Listener http(answer("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(error_at(http.port(), 20s),
            std::string("store: HOST is not a tandem store\n  it sent 'HTTP/1.1 400 Bad Request'") + kAdvice);
}

TEST(TcpStore, GarbageReplyIsQuotedInError) {
  const Listener garbage(answer(std::string("\0\x01\xff garbage, and more than fits a line of an error text", 56)));
  EXPECT_EQ(
      error_at(garbage.port(), 20s),
      std::string("store: HOST is not a tandem store\n  it sent '??? garbage, and more than fits a line o'") + kAdvice);
}

TEST(TcpStore, UnexpectedFramesAreReportedAsForeign) {
  const Listener other(answer(wire::encode(FrameType::kReply, 0, PayloadWriter().number(0).text("x").take())));
  EXPECT_TRUE(error_at(other.port(), 20s).starts_with("store: HOST is not a tandem store\n  it sent 'TTD2"));
  const Listener torn(answer(wire::encode(FrameType::kRejected, 0, "abc")));
  EXPECT_TRUE(error_at(torn.port(), 20s).starts_with("store: HOST is not a tandem store\n"));
}

TEST(TcpStore, SilentListenerTimesOutWhileJoining) {
  const Listener silent([](int) { return true; });
  EXPECT_EQ(error_at(silent.port(), 100ms),
            "store: HOST did not respond to rank 1 within 0.1 s\n"
            "  another program may be listening on this port; choose another one (MASTER_PORT)");
}

TEST(TcpStore, SilentHostDoesNotBlockFailingRank) {
  const Listener silent(answer(wire::encode(FrameType::kWelcome, 0, "")));
  TcpStore store({.port = silent.port(), .token = wire::random_token(), .rank = 1, .world_size = 2});
  const auto begin = std::chrono::steady_clock::now();
  store.announce_failure(1, "no disk");  // acknowledged by the host's kernel
  store.leave();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(TcpStore, ReplyTimeoutFailsRequests) {
  const Listener silent(answer(wire::encode(FrameType::kWelcome, 0, "")));
  TcpStore store(
      {.port = silent.port(), .token = wire::random_token(), .rank = 1, .world_size = 2, .reply_timeout = 100ms});
  const std::string text = td::str("store: 127.0.0.1:", silent.port(), " did not respond to rank 1 within 0.1 s");
  EXPECT_EQ(td::testing::error_text<td::CommError>([&] { store.add("key", 2); }), text);
  EXPECT_EQ(td::testing::error_text<td::CommError>([&] { store.contains({"key"}); }), text);
}

TEST(TcpStore, ZeroConnectTimeoutDisablesReplyTimeout) {
  // As if stopped in a debugger.
  const Listener late(serve([](const wire::Frame& request) {
    std::this_thread::sleep_for(300ms);
    return reply(request, "5");
  }));
  TcpStore store({.port = late.port(),
                  .token = wire::random_token(),
                  .rank = 1,
                  .world_size = 2,
                  .connect_timeout = 0ms,
                  .reply_timeout = 100ms});
  EXPECT_EQ(store.add("key", 2), 5);
}

TEST(TcpStore, KeySetBeforeFailureIsReturned) {
  // The failure overtakes the request for the key: the host receives the request after it has sent the failure.
  const Listener host(serve([](const wire::Frame& frame) {
    if (frame.type == FrameType::kCancelGet) return std::string();
    if (wire::read_request(frame).number == 0) return reply(frame, "value");
    return wire::encode(FrameType::kRankEnded, 0,
                        PayloadWriter().number(0).number(static_cast<int>(RankEnd::kDied)).text("died").take());
  }));
  TcpStore store({.port = host.port(), .token = wire::random_token(), .rank = 1, .world_size = 2});
  EXPECT_EQ(store.get("key", 20s), "value");
}

TEST(TcpStore, PartialFrameTimesOutWhileJoining) {
  const Listener half(answer(wire::encode(FrameType::kWelcome, 0, "").substr(0, 9)));
  EXPECT_TRUE(error_at(half.port(), 100ms).starts_with("store: HOST did not respond to rank 1 within 0.1 s\n"));
}

TEST(TcpStore, ClosedConnectionIsRetriedThenReported) {
  std::atomic<int> attempts{0};
  const Listener closing([&](int) {
    ++attempts;
    return false;
  });
  EXPECT_EQ(error_at(closing.port(), 20s),
            "store: HOST closed the connection of rank 1 before it joined\n"
            "  another job or program uses this port, or TANDEM_TOKEN is wrong");
  EXPECT_GT(attempts.load(), 1);  // retried, because it could have been a store that was shutting down
}

TEST(TcpStore, ClosedConnectionIsRetriedUntilAccepted) {
  // As if the store of an earlier job were shutting down.
  std::atomic<int> attempts{0};
  const std::string welcome = wire::encode(FrameType::kWelcome, 0, "");
  const Listener changing([&](int fd) { return ++attempts > 2 && answer(welcome)(fd); });
  EXPECT_EQ(error_at(changing.port(), 20s), "no CommError");
  EXPECT_EQ(attempts.load(), 3);
}

TEST(TcpStore, NotYetReplyIsRetriedUntilTimeout) {
  std::atomic<int> attempts{0};
  const Listener later([&](int fd) {
    return answer(++attempts > 9
                      ? wire::encode(FrameType::kWelcome, 0, "")
                      : wire::encode(FrameType::kNotYet, 0, PayloadWriter().text("others are here").take()))(fd);
  });
  EXPECT_EQ(error_at(later.port(), 20s), "no CommError");
  attempts = -1000;
  EXPECT_EQ(error_at(later.port(), 100ms), "store: HOST rejected rank 1: others are here");
}

TEST(TcpStore, PortInUseIsReportedByRankZero) {
  const Listener http(answer("HTTP/1.1 400 Bad Request\r\n\r\n"));
  RankEnvironment env;
  env.world_size = 2;
  env.store_host = "127.0.0.1";
  env.store_port = http.port();
  env.token = wire::random_token();
  env.hosts_store = true;
  env.port_advice = "set MASTER_PORT to a free port";
  try {
    join_job_store(env, 20s);
    FAIL() << "two listen on one port";
  } catch (const td::IoError& e) {
    EXPECT_EQ(e.what(), "store: cannot listen on 127.0.0.1:" + std::to_string(http.port()) +
                            ": Address already in use\n  set MASTER_PORT to a free port");
  }
}

}  // namespace
