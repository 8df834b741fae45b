// Point-to-point messages. Private to distributed/backends/network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/backends/network/mesh.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

/// Point-to-point messages between this rank and all other ranks.
///
/// The sender offers a message. When the receiver has a posted receive with that tag, it checks the offer and requests
/// the data. A small message in host memory carries its data in the offer. At the end the receiver acknowledges the
/// data; it acknowledges a direct message immediately. So data that arrives is always received into its memory,
/// and a send is complete when the receiver has acknowledged it.
class P2pMatcher {
 public:
  P2pMatcher(const ProcessGroupOptions& options, const Tuning& tuning, Mesh& mesh);

  void start(P2pRequest& transfer);
  /// Processes an offer, an answer, or data of a message. Throws IoError if the frame is invalid, and GroupError for
  /// data of no known message.
  void take(Frame& frame);
  /// Advances all messages. Returns whether anything has happened since the last call. Throws GroupError if the
  /// arguments of two ranks do not match, or a peer answers what it should not.
  bool advance();
  bool any() const { return std::any_of(peers_.begin(), peers_.end(), is_active); }
  /// Whether a message to or from `rank` is not complete.
  bool waits_for(int rank) const { return is_active(peers_[static_cast<size_t>(rank)]); }

 private:
  struct Sending {
    uint64_t id = 0;
    P2pRequest* transfer = nullptr;
    bool is_wanted = false;
    int64_t sent = 0;
    uint64_t last_index = 0;  ///< number of the last data frame on the connection
  };
  struct Receiving {
    uint64_t id = 0;
    P2pRequest* transfer = nullptr;
    int64_t arrived = 0;
  };
  struct Peer {
    uint64_t last_id = 0;
    std::deque<Sending> sending;
    std::deque<P2pRequest*> posted;   ///< receives that wait for an offer
    std::deque<MessageFrame> offers;  ///< offers without a posted receive
    std::deque<Receiving> receiving;
    std::deque<AnswerFrame> answers;
  };

  static bool is_active(const Peer& peer) {
    return !peer.sending.empty() || !peer.posted.empty() || !peer.receiving.empty();
  }
  void take_data(Peer& peer, Frame& frame);
  void take_answer(int rank, const AnswerFrame& answer);
  void accept(int rank, const MessageFrame& offer, P2pRequest& transfer);
  bool send(int rank);
  [[noreturn]] void throw_mismatch(int sender, const MessageFrame& sent, int receiver,
                                   const MessageFrame& posted) const;

  const ProcessGroupOptions options_;
  const Tuning tuning_;
  Mesh& mesh_;
  std::vector<Peer> peers_;
  bool moved_ = false;
};

}}}  // namespace tandem::v0::distributed::network
