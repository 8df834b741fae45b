// A rank is stopped, as in a debugger, for longer than the timeout for lost machines: with gloo, and with stores, also
// as their host.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

/// More than the capacity of the kernel's buffers.
std::string large_value() { return std::string(15 << 20, 'x'); }

/// A store of two ranks, hosted by the stopped rank.
std::shared_ptr<Store> make_hosted_store(Context& context) {
  const bool is_host = context.rank() == 1;
  if (is_host) context.store()->set("port", std::to_string(local_port(listen_on("127.0.0.1", 0).get())));
  return make_tcp_store({.port = std::stoi(context.store()->get("port", kLongTimeout)),
                         .is_host = is_host,
                         .rank = is_host ? 0 : 1,
                         .world_size = 2,
                         .timeout = std::chrono::milliseconds(0)});
}

TANDEM_RANK_MAIN(go_on_after_long) {
  const ProcessGroupOptions options = {.store = context.store(),
                                       .rank = context.rank(),
                                       .world_size = context.world_size(),
                                       .name = "patient",
                                       .timeout = kLongTimeout};
  const auto group = ProcessGroupAccess::make(options, network::make_network_backend(options));
  const auto hosted = make_hosted_store(context);
  // Enough data that it does not complete before the other rank is stopped.
  constexpr int kTimes = 8;
  const Tensor x = full({16 << 20}, 1.0 + group->rank());
  group->barrier();
  std::vector<Work> works;
  for (int i = 0; i < kTimes; ++i) works.push_back(group->all_reduce_async(x));
  std::future<std::string> answer;
  std::future<void> request;
  if (group->rank() == 1) {
    // The host of the store sends while this rank does not read.
    answer = std::async(std::launch::async, [&] { return context.store()->get("large", kLongTimeout); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    context.store()->set("started", std::to_string(getpid()));
  } else {
    const pid_t other = std::stoi(context.store()->get("started", kLongTimeout));
    kill(other, SIGSTOP);
    context.store()->set("large", large_value());
    request = std::async(std::launch::async, [&] { hosted->set("large", large_value()); });
    std::this_thread::sleep_for(kLostAfter + std::chrono::seconds(3));
    const bool is_over =
        works.back().is_completed() || request.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    kill(other, SIGCONT);
    if (is_over) throw StateError("it was over before the other was stopped");
  }
  for (const Work& work : works) work.wait();
  if (!same_bytes(x, full({16 << 20}, 3 << (kTimes - 1)))) throw StateError("a wrong sum");
  if (answer.valid() && answer.get() != large_value()) throw StateError("another answer");
  if (request.valid()) request.get();
  if (hosted->get("large", kLongTimeout) != large_value()) throw StateError("another request");
  hosted->leave(1 - context.rank());
}

/// Drops all packets of this process's connections from and to ports for which `is_cut` returns true.
void cut_off(const std::function<bool(int port)>& is_cut) {
  sock_filter drop[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog program = {1, drop};
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in near = {};
    sockaddr_in far = {};
    socklen_t size = sizeof(near);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&near), &size) != 0 || near.sin_family != AF_INET) continue;
    size = sizeof(far);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&far), &size) != 0) continue;
    if (!is_cut(ntohs(near.sin_port)) && !is_cut(ntohs(far.sin_port))) continue;
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  }
}

TANDEM_RANK_MAIN(lose_peer) {
  std::set<int> ports;  // of earlier connections
  cut_off([&](int port) { return ports.insert(port), false; });
  const auto group = ProcessGroup::create(
      {.store = context.store(), .rank = context.rank(), .world_size = 2, .timeout = kLongTimeout, .backend = "gloo"});
  group->barrier();
  cut_off([&](int port) { return !ports.contains(port); });
  const std::string text = testing::error_text<CommError>([&] { group->all_reduce(full({1 << 20}, 1)); });
  if (!text.ends_with(": cannot be reached (its connection timed out)")) throw StateError(text);
  context.store()->set(str("seen by ", context.rank()), "");
  context.store()->get(str("seen by ", 1 - context.rank()), kLongTimeout);
}

TEST(PeerLoss, UnreachablePeerIsNamed) { spawn(2, "lose_peer", {}); }

/// Both ends of a store detect that the other machine does not acknowledge data.
void check_lost_machines() {
  const std::string token = wire::random_token();
  StoreServer server({.token = token, .world_size = 2});
  server.start();
  TcpStore store({.port = server.port(), .token = token, .rank = 0, .world_size = 2});
  store.set("here", "");
  cut_off([&](int port) { return port == server.port(); });
  server.report({1, RankEnd::kFailed, "out of data"});
  const auto deadline = std::chrono::steady_clock::now() + kLostAfter + std::chrono::seconds(5);
  const std::string text = testing::error_text<CommError>([&] { store.set("not", "heard"); });
  EXPECT_NE(text.find("it has not responded for 10.0 s"), std::string::npos) << text;
  while (server.failures().events().size() < 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  ASSERT_EQ(server.failures().events().size(), 2u);
  EXPECT_EQ(server.failures().events()[1].reason, "cannot be reached (its connection timed out)");
}

TEST(PeerLoss, PausedPeerIsNotTreatedAsDead) {
  const std::jthread meanwhile(check_lost_machines);
  spawn(2, "go_on_after_long", {});
}

}}}}  // namespace tandem::v0::distributed
