// Messages between two ranks. Private to distributed/backends/gloo.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/backends/gloo/mesh.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// This rank's messages, to and from all others.
///
/// A sender offers a message; the receiver, once it waits for one of that tag, agrees and asks for the data, which
/// small messages carry with the offer, and in the end says that it has it. So what arrives in the links' slots can
/// always be taken at once, and a send is complete when the receiver says so.
class Messages {
 public:
  Messages(const ProcessGroupOptions& options, const Tuning& tuning, Mesh& mesh);

  void start(Transfer& transfer);
  /// An offer, an answer, or data of a message. Throws IoError where it fits no message.
  void take(Frame& frame);
  /// Goes on with all; whether anything has happened since the last call. Throws GroupError where two ranks do not
  /// agree.
  bool advance();
  bool any() const;
  /// Whether a message to or from `rank` is not complete.
  bool waits_for(int rank) const;

 private:
  struct Sending {
    uint64_t id = 0;
    Transfer* transfer = nullptr;
    bool is_wanted = false;
    int64_t sent = 0;
    uint64_t last_index = 0;  ///< of the link, of the data frame that was sent last
  };
  struct Receiving {
    uint64_t id = 0;
    Transfer* transfer = nullptr;
    int64_t arrived = 0;
  };
  struct Peer {
    uint64_t last_id = 0;
    std::deque<Sending> sending;
    std::deque<Transfer*> posted;     ///< wait for an offer
    std::deque<MessageFrame> offers;  ///< that nobody waits for yet
    std::deque<Receiving> receiving;
    std::deque<AnswerFrame> answers;
  };

  void take_data(Peer& peer, Frame& frame);
  void take_answer(int rank, const AnswerFrame& answer);
  bool match(int rank);
  void accept(int rank, const MessageFrame& offer, Transfer& transfer);
  bool send(int rank);
  [[noreturn]] void throw_mismatch(int sender, const MessageFrame& sent, int receiver,
                                   const MessageFrame& posted) const;

  const ProcessGroupOptions options_;
  const Tuning tuning_;
  Mesh& mesh_;
  std::vector<Peer> peers_;
  bool moved_ = false;
};

}}}  // namespace tandem::v0::distributed::gloo
