// Foreign connections to the ports of a group that starts over the network, and a rank that sends invalid data later:
// the group starts as if there were no foreign connections, and fails with a typed error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backends/network/handshake.h>
#include <tandem/distributed/backends/network/interface.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/full.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using ::testing::ContainsRegex;
using ::testing::MatchesRegex;

constexpr int kWorld = 3;
const std::string kGarbage(5000, '\xa5');

/// A store with callbacks before a key is set, and for changing the values read.
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

/// The port in "127.0.0.1 41234", the format of addresses in the store; 0 for "-".
int port_of(const std::string& address) {
  return address == "-" ? 0 : std::stoi(address.substr(address.find(' ') + 1));
}

/// Connects to a listening socket on the loopback and sends `says`; empty if the connection is not accepted.
FileDescriptor visit(const std::string& address, const std::string& says) {
  const bool is_v6 = address.starts_with("::1 ");
  sockaddr_storage number = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(number);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(number);
  v4.sin_port = htons(static_cast<uint16_t>(port_of(address)));  // at the same place in both
  if (is_v6) {
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
  } else {
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  FileDescriptor fd(socket(number.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  connect(fd.get(), reinterpret_cast<const sockaddr*>(&number), is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  pollfd connected = {fd.get(), POLLOUT, 0};
  if (poll(&connected, 1, 1000) != 1 || (connected.revents & POLLERR) != 0) return {};
  send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL);
  return fd;
}

/// Connects to given ports and keeps the connections open.
class Stranger {
 public:
  explicit Stranger(std::string says) : says_(std::move(says)) {}

  /// `address`: of a listening socket, in the store's format.
  void visit(const std::string& address) {
    if (address == "-") return;
    FileDescriptor fd = distributed::visit(address, says_);
    std::lock_guard lock(mutex_);
    if (fd) connections_.push_back(std::move(fd));
  }
  int visits() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }
  /// Closes all connections.
  void go() {
    std::lock_guard lock(mutex_);
    connections_.clear();
  }

 private:
  const std::string says_;
  mutable std::mutex mutex_;
  std::vector<FileDescriptor> connections_;
};

using Hooks = std::function<std::shared_ptr<Store>(ProcessGroupOptions& options)>;

/// Runs ranks that join, all-reduce 1, 2, 3 and call `joined`; returns their errors.
std::vector<std::string> join_and_add(
    const Hooks& hooks, std::chrono::milliseconds timeout = {}, const std::function<void()>& joined = [] {}) {
  ProcessGroupOptions common;
  if (timeout.count() > 0) common.timeout = timeout;
  const MakeBackend make = [&](ProcessGroupOptions options) {
    options.store = hooks(options);
    return network::make_network_backend(options);
  };
  return try_backend_ranks(
      kWorld, make,
      [&](Backend& backend, int rank) {
        std::vector<float> x(50000, static_cast<float>(rank + 1));
        Collective collective;
        collective.kind = CollectiveKind::kAllReduce;
        collective.seq = 1;
        collective.num_elements = static_cast<int64_t>(x.size());
        collective.input = reinterpret_cast<std::byte*>(x.data());
        collective.output = reinterpret_cast<std::byte*>(x.data());
        run_collective(backend, collective);
        for (const float value : x) TANDEM_CHECK(StateError, value == 6, "sum: ", value);
        joined();
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

/// Called when a rank publishes its address, before other ranks read it.
Hooks at_each_listener(std::function<void(const std::string& address)> f) {
  return show([f = std::move(f)](int, const std::string& key, const std::string& value) {
    if (has(key, "address/")) f(value);
  });
}

TEST(NetworkConnectionSetup, EarlyForeignConnectionsDoNotPreventSetup) {
  std::string half_a_hello("TGH1");
  half_a_hello.resize(20);
  for (const std::string& says : {std::string(), kGarbage, std::string(1, '\0'), half_a_hello}) {
    for (const bool stays : {true, false}) {
      Stranger stranger(says);
      const std::vector<std::string> errors = join_and_add(at_each_listener([&](const std::string& address) {
        stranger.visit(address);
        if (!stays) stranger.go();
      }));
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      if (stays) {
        EXPECT_EQ(stranger.visits(), kWorld - 1);  // the highest rank does not listen
      }
    }
  }
}

TEST(NetworkConnectionSetup, ForeignConnectionsAreReportedInWarning) {
  struct Case {
    std::string says;
    const char* why;
  };
  for (const Case& c : {Case{kGarbage, "wrong token"}, Case{"x", "no token before all ranks had connected"}}) {
    Stranger stranger(c.says);
    ::testing::internal::CaptureStderr();
    join_and_add(at_each_listener([&](const std::string& address) { stranger.visit(address); }));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ContainsRegex(str("gloo: dropped the connection from 127\\.0\\.0\\.1:[0-9]+ \\(user ", geteuid(),
                                  "\\): ", c.why)));
  }
}

TEST(NetworkConnectionSetup, ManySilentConnectionsDoNotBlockRanks) {
  Stranger stranger("");
  const std::vector<std::string> errors = join_and_add(at_each_listener([&](const std::string& address) {
    for (int i = 0; i < 150; ++i) stranger.visit(address);
  }));
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(stranger.visits(), 150 * (kWorld - 1));
}

TEST(NetworkConnectionSetup, ClosedConnectionIsRetriedByRank) {
  // The test is rank 0: it closes the first connection, as with too many foreign connections, and accepts the second.
  const std::string token(2 * wire::kTokenBytes, 'a');
  const std::shared_ptr<Store> store = make_memory_store();
  const FileDescriptor listener = listen_on("127.0.0.1", 0);
  network::Connections connections;
  std::thread rank_1([&] {
    const ProcessGroupOptions options{.store = store, .rank = 1, .world_size = 2};
    Rendezvous rendezvous(options, "gloo");
    connections = network::connect_ranks(options, {"lo", "127.0.0.1", true}, token, rendezvous);
  });
  const ProcessGroupOptions options{.store = store, .rank = 0, .world_size = 2};
  Rendezvous(options, "gloo").exchange("address", str("127.0.0.1 ", local_port(listener.get())));
  std::string hello(72, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    pollfd ready = {listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 20000), 1);
    const FileDescriptor connection(accept(listener.get(), nullptr, nullptr));
    if (attempt == 0) continue;
    EXPECT_EQ(recv(connection.get(), hello.data(), hello.size(), MSG_WAITALL), static_cast<ssize_t>(hello.size()));
    EXPECT_EQ(hello.substr(8), token);
    hello[4] = 0;  // the rank
    EXPECT_EQ(send(connection.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
    rank_1.join();
  }
  EXPECT_EQ(connections.missing, -1);
  EXPECT_TRUE(connections.sockets.at(0));
}

TEST(NetworkConnectionSetup, ForeignConnectionsAreDroppedOverIpv6) {
  const std::vector<network::Interface> interfaces = network::list_interfaces();
  const bool has_ipv6 =
      std::any_of(interfaces.begin(), interfaces.end(), [](const network::Interface& i) { return i.address == "::1"; });
  Stranger stranger(kGarbage);
  ::testing::internal::CaptureStderr();
  const std::vector<std::string> errors = join_and_add([&](ProcessGroupOptions& options) {
    options.network_interface = "::1";
    return at_each_listener([&](const std::string& address) { stranger.visit(address); })(options);
  });
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  for (const std::string& error : errors) EXPECT_EQ(error, has_ipv6 ? "" : error);
  EXPECT_EQ(stranger.visits(), has_ipv6 ? kWorld - 1 : 0);
  if (has_ipv6) {
    EXPECT_THAT(warnings,
                ContainsRegex(str("gloo: dropped the connection from ::1:[0-9]+ \\(user ", geteuid(), "\\): ")));
  }
}

TEST(NetworkConnectionSetup, ListeningPortsCloseOnceRanksAreConnected) {
  Stranger stranger(kGarbage);
  std::mutex mutex;
  std::vector<std::string> addresses;
  const auto note = [&](const std::string& address) {
    std::lock_guard lock(mutex);
    addresses.push_back(address);
  };
  const std::vector<std::string> errors = join_and_add(at_each_listener(note), {}, [&] {
    for (const std::string& address : addresses) stranger.visit(address);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(stranger.visits(), 0);
}

TEST(NetworkConnectionSetup, FailedConnectionIsReportedOnAllRanks) {
  const std::vector<std::string> errors = join_and_add([](const ProcessGroupOptions& options) {
    return std::make_shared<ShownStore>(options.store, nullptr, [](const std::string& key, const std::string& value) {
      return has(key, "connected/1") ? "no connection to rank 0: Connection refused" : value;
    });
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              str("[rank ", rank, " of 3] group 'default': the ranks cannot connect over lo (127.0.0.1)\n",
                  "  rank 1: no connection to rank 0: Connection refused"));
  }
}

TEST(NetworkConnectionSetup, RankWithWrongTokenIsRejected) {
  ::testing::internal::CaptureStderr();
  const std::vector<std::string> errors = join_and_add(
      [](const ProcessGroupOptions& options) -> std::shared_ptr<Store> {
        if (options.rank != 1) return options.store;
        return std::make_shared<ShownStore>(
            options.store, nullptr, [](const std::string& key, const std::string& value) {
              return has(key, "token") ? wire::token_to_hex(wire::random_token()) : value;
            });
      },
      std::chrono::milliseconds(1000));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ContainsRegex("gloo: dropped the connection .*: wrong token"));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_THAT(errors[static_cast<size_t>(rank)],
                MatchesRegex(str("\\[rank ", rank, " of 3\\] group 'default': rendezvous [^\n]*\n  rank ",
                                 rank == 1 ? "[02]" : "1", ": [^\n]+")));
  }
}

TEST(NetworkConnectionSetup, UnreachablePeersTimeOutOnAllRanks) {
  const std::vector<std::string> errors = join_and_add(
      [](const ProcessGroupOptions& options) {
        return std::make_shared<ShownStore>(options.store, nullptr,
                                            [](const std::string& key, const std::string& value) {
                                              return has(key, "address/") ? "127.0.0.1 1" : value;  // no listener
                                            });
      },
      std::chrono::milliseconds(1000));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              str("[rank ", rank, " of 3] group 'default': rendezvous timed out after 1.0 s\n  rank ",
                  rank == 0 ? 1 : 0, ": no connection over lo (127.0.0.1)"));
  }
}

// --- a peer ---

/// The local end of the connection to that port.
int connection_to(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET &&
        ntohs(peer.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

/// The first record after `change`.
std::string record_of(network::FrameType type, const std::function<void(network::FrameHeader&)>& change) {
  network::FrameHeader header;
  header.type = static_cast<uint16_t>(type);
  change(header);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

/// The errors of two ranks after rank 1 has sent this.
std::vector<Thrown> after_record(const std::string& record) {
  std::atomic<int> port{0};  // of rank 0
  const auto note_port = [&](const std::string& key, const std::string& value) {
    if (has(key, "address/0")) port = port_of(value);
  };
  std::latch ended(2);
  std::vector<Thrown> thrown(2);
  const ThreadRanks ranks{.store = std::make_shared<ShownStore>(make_memory_store(), note_port, nullptr),
                          .backend = "gloo"};
  ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 1) {
      EXPECT_EQ(send(connection_to(port), record.data(), record.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(record.size()));
    }
    // Sends no frame itself.
    thrown[static_cast<size_t>(g.rank())] = thrown_by([&] { g.recv(zeros({3}), 1 - g.rank()); });
    ended.arrive_and_wait();
  });
  return thrown;
}

TEST(NetworkPeer, MalformedFrameFailsBothRanks) {
  using network::FrameHeader;
  using network::FrameType;
  struct Case {
    std::string record;
    const char* error;
  };
  const Case cases[] = {
      {kGarbage, "with a wrong magic number"},
      {record_of(FrameType::kOffer, [](FrameHeader& h) { h.length = 1 << 20; }), "whose payload is too long"},
      {record_of(FrameType::kData, [](FrameHeader& h) { h.data_length = 2 << 20; }), "whose data is too long"},
      {record_of(FrameType::kOffer, [](FrameHeader& h) { h.seq = 1; }), "out of order"},
  };
  for (const Case& c : cases) {
    const std::vector<Thrown> thrown = after_record(c.record);
    for (int rank = 0; rank < 2; ++rank) {
      const Thrown& t = thrown[static_cast<size_t>(rank)];
      EXPECT_EQ(t.text, str("[rank ", rank, " of 2] recv from rank ", 1 - rank,
                            " tag 0 failed\n  rank 1: gloo: received a frame ", c.error));
      EXPECT_EQ(t.peer, 1);
    }
  }
}

}}}}  // namespace tandem::v0::distributed
