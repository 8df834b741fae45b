// Detection of lost peers that do not respond.
#include <gtest/gtest.h>

#include <linux/filter.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <tandem/distributed/rendezvous/socket.h>

namespace tandem::distributed { namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// --- the kernel's TCP state, on the loopback interface ---

/// Both ends of a loopback connection.
struct Connection {
  Connection() {
    const FileDescriptor listener = listen_on("127.0.0.1", 0);
    near = connect_to("127.0.0.1", local_port(listener.get()), Clock::now() + 20s);
    for (int i = 0; i < 2000 && !far; ++i) {
      far = FileDescriptor(accept(listener.get(), nullptr, nullptr));
      if (!far) std::this_thread::sleep_for(10ms);
    }
  }
  /// Writes until the kernel's buffers are full.
  void fill() {
    const std::string piece(64 << 10, 'x');
    while (send(near.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  /// Drops all packets from now on.
  void cut() {
    sock_filter drop[] = {{BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog program = {1, drop};
    ASSERT_EQ(setsockopt(far.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  }

  FileDescriptor near;
  FileDescriptor far;
};

// Shorter than in production; the time of two unanswered probes.
constexpr std::chrono::milliseconds kSilence = 2s;

/// Polls frequently for `longest`.
bool is_lost_within(int fd, Clock::duration longest) {
  SilenceWatch watch(kSilence);
  for (const auto deadline = Clock::now() + longest; Clock::now() < deadline;) {
    if (watch.is_lost(fd)) return true;
    std::this_thread::sleep_for(100ms);
  }
  return false;
}

TEST(SilenceWatch, UnresponsiveMachineIsLost) {
  const auto begin = Clock::now();
  Connection c;
  c.cut();
  ASSERT_EQ(send(c.near.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(is_lost_within(c.near.get(), 20s));
  EXPECT_GE(Clock::now() - begin, kSilence - 20ms);  // the kernel's clock has tick resolution
}

TEST(SilenceWatch, PeerThatDoesNotReadIsNotLost) {
  Connection c;
  c.fill();
  EXPECT_FALSE(is_lost_within(c.near.get(), 4s));
}

TEST(SilenceWatch, IdleConnectionIsNotLost) {
  Connection c;
  EXPECT_FALSE(is_lost_within(c.near.get(), 4s));
}

TEST(SilenceWatch, UnresponsiveMachineIsLostAfterFullBuffer) {
  Connection c;
  c.fill();
  c.cut();
  EXPECT_TRUE(is_lost_within(c.near.get(), 20s));
}

// --- time of detection ---

/// Number and last time of retransmissions until `t`: after `timeout`, then after twice that, and so on.
struct Repeats {
  Repeats(double t, double timeout) {
    for (double next = timeout; next <= t; next += timeout) {
      ++count;
      last = next;
      timeout = std::min(2 * timeout, 120.0);
    }
  }
  uint8_t count = 0;
  double last = 0;
};

/// Seconds until the peer counts as lost, polled at `phase` and then every `interval`; 0: not within `longest`.
double seconds_until_lost(double phase, double longest, const std::function<tcp_info(double)>& kernel,
                          double interval = 1) {
  SilenceWatch watch;
  for (double t = phase; t < longest; t += interval) {
    const auto now = Clock::time_point(std::chrono::duration_cast<Clock::duration>(Seconds(1000 + t)));
    if (watch.is_lost(kernel(t), now)) return t;
  }
  return 0;
}

tcp_info after(double silence) {
  tcp_info info = {};
  info.tcpi_last_ack_recv = static_cast<uint32_t>(silence * 1000);
  return info;
}

constexpr double kPhases[] = {0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95};
constexpr double kTimeouts[] = {0.2, 0.21, 0.25, 0.3, 0.4, 0.5, 0.7, 0.9, 1.0, 1.2, 2.0};

TEST(SilenceWatch, LostMachineIsDetectedWithinTenSeconds) {
  for (const double phase : kPhases) {
    for (const double timeout : kTimeouts) {
      const auto unacked = [&](double t) {  // sent right after the last response
        tcp_info info = after(t);
        info.tcpi_unacked = 1;
        info.tcpi_retransmits = Repeats(t, timeout).count;
        return info;
      };
      const auto no_route = [&](double t) {
        tcp_info info = after(t);
        info.tcpi_probes = Repeats(t, timeout).count;
        return info;
      };
      for (const double t : {seconds_until_lost(phase, 60, unacked), seconds_until_lost(phase, 60, no_route)}) {
        EXPECT_GE(t, 9) << phase << " " << timeout;
        EXPECT_LT(t, 10) << phase << " " << timeout;
      }
    }
  }
}

TEST(SilenceWatch, LateSendDoesNotRestartDetection) {
  for (const double phase : kPhases) {
    for (const double sent : {1.0, 4.0, 8.0, 9.5}) {
      const double t = seconds_until_lost(phase, 60, [&](double now) {
        tcp_info info = after(now);
        info.tcpi_unacked = now >= sent ? 1 : 0;
        info.tcpi_retransmits = Repeats(now - sent, 0.2).count;
        return info;
      });
      EXPECT_GE(t, 9) << phase << " " << sent;
      EXPECT_LT(t, 12.2) << phase << " " << sent;  // two probes and two polls
    }
  }
}

TEST(SilenceWatch, InfrequentAcksKeepPeerAlive) {
  // Retransmissions are acknowledged after a round trip and become rarer; polls may be late.
  constexpr double kRoundTrip = 0.1;
  for (const double phase : kPhases) {
    for (const double timeout : kTimeouts) {
      const auto answered = [&](double t) { return Repeats(t - kRoundTrip, timeout); };
      const auto unacked = [&](double t) {
        tcp_info info = after(t - answered(t).last - kRoundTrip);
        info.tcpi_unacked = 1;
        info.tcpi_retransmits = Repeats(t, timeout).count;
        return info;
      };
      const auto no_room = [&](double t) {
        tcp_info info = after(t - answered(t).last - kRoundTrip);
        info.tcpi_probes = static_cast<uint8_t>(Repeats(t, timeout).count - answered(t).count);
        return info;
      };
      for (const double interval : {1.0, 1.9, 3.7}) {
        EXPECT_EQ(seconds_until_lost(phase + kRoundTrip, 600, unacked, interval), 0) << phase << " " << timeout;
        EXPECT_EQ(seconds_until_lost(phase + kRoundTrip, 600, no_room, interval), 0) << phase << " " << timeout;
      }
    }
  }
}

}}  // namespace tandem::distributed
