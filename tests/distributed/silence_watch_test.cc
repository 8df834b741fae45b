// Which silent peers count as lost.
#include <gtest/gtest.h>

#include <linux/filter.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include <tandem/distributed/store/socket.h>

namespace tandem::distributed {
namespace {

using namespace std::chrono_literals;

/// Two ends of a connection over the loopback.
struct Connection {
  Connection() {
    const FileDescriptor listener = listen_on("127.0.0.1", 0);
    near = connect_to("127.0.0.1", local_port(listener.get()), std::chrono::steady_clock::now() + 20s);
    for (int i = 0; i < 2000 && !far; ++i) {
      far = FileDescriptor(accept(listener.get(), nullptr, nullptr));
      if (!far) std::this_thread::sleep_for(10ms);
    }
  }
  /// Until the kernel takes no more.
  void fill() {
    const std::string piece(64 << 10, 'x');
    while (send(near.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  /// The far machine answers nothing from now on.
  void cut() {
    sock_filter drop[] = {{BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog program = {1, drop};
    ASSERT_EQ(setsockopt(far.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
  }

  FileDescriptor near;
  FileDescriptor far;
};

/// How many looks it takes, 100 ms apart; 0: more than `most`.
int looks_until_lost(int fd, int most) {
  SilenceWatch watch;
  for (int i = 1; i <= most; ++i) {
    if (watch.is_lost(fd)) return i;
    std::this_thread::sleep_for(100ms);
  }
  return 0;
}

TEST(SilenceWatch, AMachineThatAnswersNothingIsLost) {
  Connection c;
  c.cut();
  ASSERT_EQ(send(c.near.get(), "x", 1, MSG_NOSIGNAL), 1);
  // Eight in a row, and none in the first one and a half seconds.
  EXPECT_GE(looks_until_lost(c.near.get(), 60), 20);
}

TEST(SilenceWatch, AProgramThatTakesNothingIsNot) {
  Connection c;
  c.fill();
  EXPECT_EQ(looks_until_lost(c.near.get(), 40), 0);
}

TEST(SilenceWatch, NorIsOneToWhichNothingWasSent) {
  Connection c;
  EXPECT_EQ(looks_until_lost(c.near.get(), 30), 0);
}

TEST(SilenceWatch, AfterAFullBufferTooAMachineThatAnswersNothingIsLost) {
  Connection c;
  c.fill();
  c.cut();
  EXPECT_GT(looks_until_lost(c.near.get(), 100), 0);
}

}  // namespace
}  // namespace tandem::distributed
