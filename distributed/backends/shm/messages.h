// Point-to-point messages over shared memory. Private to distributed/backends/shm.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/notifier.h>
#include <tandem/distributed/backends/shm/segment.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// The point-to-point messages of one rank.
///
/// The sender announces its messages in order, in entries of the pair's Channel. An entry is free again when its
/// message is complete. For each receive, oldest first, the receiver finds the first announced message with that tag,
/// compares the arguments, and answers in its Inbox. Small data in host memory is stored with the announcement, so the
/// answer completes the message, as it does for direct messages. Other data follows the answer, in pieces through the
/// ring of the pair. Only messages with a receive send pieces, so data in the ring can always be taken out.
class P2pMatcher {
 public:
  P2pMatcher(const ProcessGroupOptions& options, const Tuning& tuning, const Layout& layout, const Mapping& mapping,
             const Notifier& notifier);

  void start(P2pRequest& transfer);
  /// Makes progress without waiting, about one piece per pair. Returns whether anything moved. Throws GroupError if a
  /// message differs from its receive.
  bool advance();
  bool any() const { return num_running_ > 0; }
  /// Whether a message to or from that rank is incomplete.
  bool any_with(int rank) const { return peers_[static_cast<size_t>(rank)].num_running > 0; }

 private:
  struct Outgoing {
    P2pRequest* transfer = nullptr;
    int32_t entry = 0;
    int64_t bytes_sent = 0;
    int64_t last_piece = 0;  ///< the message is complete when this piece is taken; 0: not all pieces are in the ring
  };
  struct Incoming {
    P2pRequest* transfer = nullptr;
    int64_t bytes_taken = 0;
  };
  /// Messages between this rank and one rank (possibly itself).
  struct Peer {
    int64_t num_running = 0;
    // Outgoing messages, one list per state, in the order of the states.
    std::deque<P2pRequest*> started;
    std::vector<Outgoing> announced;
    std::deque<Outgoing>
        sending;  ///< the receiver has agreed; pieces of the first one whose data is in host memory are put into the ring
    std::vector<int32_t> free_entries;
    int64_t num_announced = 0;
    int64_t num_sent = 0;  ///< number of pieces
    // Incoming messages.
    std::deque<P2pRequest*> posted;
    std::deque<int32_t> arrived;      ///< entries of announced messages without a receive
    std::vector<Incoming> receiving;  ///< by entry
    int64_t num_receiving = 0;
    int64_t num_seen = 0;   ///< number of announcements
    int64_t num_taken = 0;  ///< number of pieces
  };

  std::byte* channel_bytes(int from, int to) const;
  Channel& channel(int from, int to) const { return *reinterpret_cast<Channel*>(channel_bytes(from, to)); }
  Inbox& inbox(int to, int from) const;
  Piece& piece(int from, int to, int64_t number) const;
  std::byte* piece_data(int from, int to, int64_t number) const;
  std::byte* small_data(int from, int to, int32_t entry) const;

  bool announce(int rank, Peer& peer);
  bool receive_answers(int rank, Peer& peer);
  bool send_piece(int rank, Peer& peer);
  bool finish_sent(int rank, Peer& peer);
  bool match(int rank, Peer& peer);
  void accept(int rank, Peer& peer, int32_t entry, P2pRequest& transfer);
  bool take_piece(int rank, Peer& peer);
  void finish(Peer& peer, P2pRequest& transfer);
  bool is_stored(const P2pRequest& transfer, uint64_t sender_gpu) const;
  [[noreturn]] void throw_mismatch(int from, const Announcement& sent, int to, const Announcement& posted) const;

  const ProcessGroupOptions& options_;
  const Tuning& tuning_;
  const Layout& layout_;
  const Mapping& mapping_;
  const Notifier& notifier_;
  std::vector<Peer> peers_;
  int64_t num_running_ = 0;
};

}}}  // namespace tandem::v0::distributed::shm
