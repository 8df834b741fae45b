// The launchers' store: disconnected launchers and lost connections.
#include <tandem/distributed/launch/node_link.h>

#include <gtest/gtest.h>

#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/tests/support/reset_connection.h>
#include <tandem/tests/support/subprocess.h>

namespace {

using namespace tandem::distributed;
using tandem::testing_support::reset_connections;
using tandem::testing_support::Subprocess;
using Losses = std::vector<std::pair<int, std::string>>;

class NodeLinkLoss : public testing::Test {
 protected:
  std::unique_ptr<NodeLink> make(int node) const {
    return std::make_unique<NodeLink>(NodeOptions{.num_nodes = 2,
                                                  .node = node,
                                                  .host = "127.0.0.1",
                                                  .port = port_,
                                                  .token = std::string(wire::kTokenBytes, 't')},
                                      [] { return false; });
  }
  /// Waits for losses, as a launcher does; returns an empty list after a timeout.
  static Losses wait_for_losses(NodeLink& link, std::vector<std::string>* messages = nullptr) {
    for (;;) {
      pollfd polled{link.fd(), POLLIN, 0};
      const bool is_late = poll(&polled, 1, 1000 * static_cast<int>(Subprocess::kBound.count())) <= 0;
      Losses lost = link.lost();
      for (std::string& letter : link.received()) {
        if (messages != nullptr) messages->push_back(std::move(letter));
      }
      if (is_late || !lost.empty()) return lost;
    }
  }

  const int port_ = local_port(listen_on("127.0.0.1", 0).get());
  const std::string host_ = "127.0.0.1:" + std::to_string(port_);
  std::unique_ptr<NodeLink> zero_ = make(0);
  std::unique_ptr<NodeLink> one_ = make(1);
};

TEST_F(NodeLinkLoss, LeaveDisconnectsAbandonedNodes) {
  zero_->leave({1});
  const Losses lost = wait_for_losses(*one_);  // node 0's store is still running
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].first, 0);
  EXPECT_TRUE(lost[0].second.starts_with("the connection to the store's host " + host_ + " was lost: "))
      << lost[0].second;
}

TEST_F(NodeLinkLoss, LossOfNodeZeroIsReportedAfterLeave) {
  zero_->send("to all");
  zero_->leave();
  zero_.reset();
  std::vector<std::string> messages;
  const Losses lost = wait_for_losses(*one_, &messages);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].first, 0);
  EXPECT_EQ(messages, std::vector<std::string>{"to all"});
}

TEST_F(NodeLinkLoss, ConnectionResetIsReportedOnBothEnds) {
  // This includes node 0's connection to its own store.
  ASSERT_EQ(reset_connections(port_), 2);
  for (NodeLink* link : {one_.get(), zero_.get()}) {
    // The loss of the other launcher may be reported first.
    Losses lost;
    do {
      lost = wait_for_losses(*link);
      ASSERT_FALSE(lost.empty());
    } while (!lost.back().second.starts_with("the connection to"));
    EXPECT_EQ(lost.back(),
              std::pair(0, "the connection to the store's host " + host_ + " was lost: Connection reset by peer"));
  }
}

}  // namespace
