#include <tandem/distributed/backends/shm/messages.h>

#include <algorithm>

#include <tandem/distributed/backends/shm/copy.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

namespace {

void write_announcement(Announcement& out, const P2pRequest& transfer) {
  static_cast<MessageSignature&>(out) = transfer;
  out.gpu = transfer.gpu;
  write_call_info(out.call_info, transfer.shape, transfer.name, transfer.where);
}

std::string describe(const Announcement& a, bool sends, int shown_peer) {
  const CallInfo& call = a.call_info;
  return describe_call(a, sends, shown_peer, call.shape, call.name, call.file, call.line);
}

}  // namespace

P2pMatcher::P2pMatcher(const ProcessGroupOptions& options, const Tuning& tuning, const Layout& layout,
                       const Mapping& mapping, const Notifier& notifier)
    : options_(options),
      tuning_(tuning),
      layout_(layout),
      mapping_(mapping),
      notifier_(notifier),
      peers_(static_cast<size_t>(options.world_size)) {}

// --- addresses ---

std::byte* P2pMatcher::channel_bytes(int from, int to) const {
  return mapping_.segments[static_cast<size_t>(from)] + layout_.channels +
         layout_.channel_bytes * static_cast<size_t>(to);
}

Inbox& P2pMatcher::inbox(int to, int from) const {
  std::byte* const first = mapping_.segments[static_cast<size_t>(to)] + layout_.inboxes;
  return reinterpret_cast<Inbox*>(first)[from];
}

Piece& P2pMatcher::piece(int from, int to, int64_t number) const {
  return reinterpret_cast<Piece*>(channel_bytes(from, to) + layout_.pieces)[number % tuning_.pieces];
}

std::byte* P2pMatcher::piece_data(int from, int to, int64_t number) const {
  return channel_bytes(from, to) + layout_.ring + number % tuning_.pieces * tuning_.piece_bytes;
}

std::byte* P2pMatcher::small_data(int from, int to, int32_t entry) const {
  return channel_bytes(from, to) + layout_.small + entry * tuning_.small_bytes;
}

// --- start and progress ---

void P2pMatcher::start(P2pRequest& transfer) {
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  if (transfer.sends) {
    if (peer.num_announced == 0 && peer.started.empty()) {
      for (int32_t entry = kMaxAnnounced; entry > 0; --entry) peer.free_entries.push_back(entry - 1);
    }
    peer.started.push_back(&transfer);
  } else {
    peer.receiving.resize(kMaxAnnounced);
    peer.posted.push_back(&transfer);
  }
  ++peer.num_running;
  ++num_running_;
  if (transfer.sends) announce(transfer.peer, peer);
}

void P2pMatcher::finish(Peer& peer, P2pRequest& transfer) {
  transfer.done = true;
  --peer.num_running;
  --num_running_;
}

/// Whether the data is stored with the announcement.
bool P2pMatcher::is_stored(const P2pRequest& transfer, uint64_t sender_gpu) const {
  return sender_gpu == 0 && transfer.num_bytes() <= tuning_.small_bytes;
}

bool P2pMatcher::advance() {
  bool moved = false;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.num_running == 0) continue;
    moved |= receive_answers(rank, peer);
    moved |= finish_sent(rank, peer);
    moved |= announce(rank, peer);
    moved |= send_piece(rank, peer);
    moved |= match(rank, peer);
    moved |= take_piece(rank, peer);
  }
  return moved;
}

// --- sender ---

bool P2pMatcher::announce(int rank, Peer& peer) {
  bool moved = false;
  Channel& out = channel(options_.rank, rank);
  while (!peer.started.empty() && !peer.free_entries.empty()) {
    P2pRequest& transfer = *peer.started.front();
    peer.started.pop_front();
    // The entry that was freed last: its pages are mapped, and its lines are in a cache.
    const int32_t entry = peer.free_entries.back();
    peer.free_entries.pop_back();
    write_announcement(out.entries[entry], transfer);
    out.entries[entry].number = transfer.number = ++peer.num_announced;
    if (is_stored(transfer, transfer.gpu))
      copy_to_peer(small_data(options_.rank, rank, entry), transfer.data, transfer.num_bytes());
    // The receiver has read the previous value of this slot: it answered that message, or the entry would not be free.
    out.order[(peer.num_announced - 1) % kMaxAnnounced] = entry;
    peer.announced.push_back({&transfer, entry});
    notifier_.publish_to(rank, out.announced, peer.num_announced);
    moved = true;
  }
  return moved;
}

bool P2pMatcher::receive_answers(int rank, Peer& peer) {
  const Inbox& answers = inbox(rank, options_.rank);
  bool moved = false;
  for (size_t i = 0; i < peer.announced.size();) {
    const Outgoing message = peer.announced[i];
    const int64_t given = answers.answers[message.entry].load(std::memory_order_seq_cst);
    if (given == answer(message.transfer->number, Reply::kRefused)) {
      message.transfer->failed = true;
      throw_mismatch(options_.rank, channel(options_.rank, rank).entries[message.entry], rank, answers.refusing);
    }
    const bool is_direct = given == answer(message.transfer->number, Reply::kDirect);
    if (!is_direct && given != answer(message.transfer->number, Reply::kAccepted)) {
      ++i;
      continue;
    }
    moved = true;
    message.transfer->direct = is_direct;
    if (is_direct || is_stored(*message.transfer, message.transfer->gpu)) {
      peer.free_entries.push_back(message.entry);
      finish(peer, *message.transfer);
    } else {
      if (message.transfer->gpu != 0) message.transfer->stage();
      peer.sending.push_back(message);
    }
    peer.announced.erase(peer.announced.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return moved;
}

bool P2pMatcher::send_piece(int rank, Peer& peer) {
  // Messages whose data is not in host memory yet are passed over.
  const auto next = std::find_if(peer.sending.begin(), peer.sending.end(), [](const Outgoing& message) {
    return message.transfer->data != nullptr && message.last_piece == 0;
  });
  if (next == peer.sending.end()) return false;
  const int64_t taken = inbox(rank, options_.rank).taken.load(std::memory_order_seq_cst);
  if (peer.num_sent - taken >= tuning_.pieces) return false;
  Outgoing& message = *next;
  const int64_t total = message.transfer->num_bytes();
  const int64_t num_bytes = std::min(tuning_.piece_bytes, total - message.bytes_sent);
  copy_to_peer(piece_data(options_.rank, rank, peer.num_sent), message.transfer->data + message.bytes_sent, num_bytes);
  piece(options_.rank, rank, peer.num_sent) = {num_bytes, message.entry};
  notifier_.publish_to(rank, channel(options_.rank, rank).sent, ++peer.num_sent);
  message.bytes_sent += num_bytes;
  if (message.bytes_sent == total) message.last_piece = peer.num_sent;
  return true;
}

bool P2pMatcher::finish_sent(int rank, Peer& peer) {
  if (peer.sending.empty()) return false;
  const int64_t taken = inbox(rank, options_.rank).taken.load(std::memory_order_seq_cst);
  return std::erase_if(peer.sending, [&](const Outgoing& message) {
           if (message.last_piece == 0 || message.last_piece > taken) return false;
           peer.free_entries.push_back(message.entry);
           finish(peer, *message.transfer);
           return true;
         }) > 0;
}

// --- receiver ---

bool P2pMatcher::match(int rank, Peer& peer) {
  if (peer.posted.empty()) return false;
  const Channel& in = channel(rank, options_.rank);
  const int64_t announced = in.announced.load(std::memory_order_seq_cst);
  while (peer.num_seen < announced) peer.arrived.push_back(in.order[peer.num_seen++ % kMaxAnnounced]);
  return match_messages(
      peer.posted, peer.arrived, [&](int32_t entry) { return in.entries[entry].tag; },
      [&](P2pRequest& transfer, int32_t entry) { accept(rank, peer, entry, transfer); });
}

void P2pMatcher::accept(int rank, Peer& peer, int32_t entry, P2pRequest& transfer) {
  const Announcement& sent = channel(rank, options_.rank).entries[entry];
  Inbox& own = inbox(options_.rank, rank);
  const int64_t number = sent.number;
  if (sent != transfer) {
    write_announcement(own.refusing, transfer);
    notifier_.publish_to(rank, own.answers[entry], answer(number, Reply::kRefused));
    transfer.failed = true;
    throw_mismatch(rank, sent, options_.rank, own.refusing);
  }
  transfer.number = number;
  transfer.direct = is_direct(sent.gpu, transfer.gpu);
  if (!transfer.direct && transfer.gpu != 0) transfer.stage();
  if (transfer.direct) {
    finish(peer, transfer);
  } else if (is_stored(transfer, sent.gpu)) {
    copy_bytes(transfer.data, small_data(rank, options_.rank, entry), transfer.num_bytes());
    finish(peer, transfer);
  } else {
    peer.receiving[static_cast<size_t>(entry)] = {&transfer, 0};
    ++peer.num_receiving;
  }
  notifier_.publish_to(rank, own.answers[entry], answer(number, transfer.direct ? Reply::kDirect : Reply::kAccepted));
}

bool P2pMatcher::take_piece(int rank, Peer& peer) {
  if (peer.num_receiving == 0) return false;
  const int64_t sent = channel(rank, options_.rank).sent.load(std::memory_order_seq_cst);
  if (peer.num_taken == sent) return false;
  const Piece& next = piece(rank, options_.rank, peer.num_taken);
  Incoming& message = peer.receiving[static_cast<size_t>(next.entry)];
  copy_bytes(message.transfer->data + message.bytes_taken, piece_data(rank, options_.rank, peer.num_taken),
             next.num_bytes);
  message.bytes_taken += next.num_bytes;
  if (message.bytes_taken == message.transfer->num_bytes()) {
    finish(peer, *message.transfer);
    --peer.num_receiving;
  }
  notifier_.publish_to(rank, inbox(options_.rank, rank).taken, ++peer.num_taken);
  return true;
}

void P2pMatcher::throw_mismatch(int from, const Announcement& sent, int to, const Announcement& posted) const {
  throw_call_mismatch(options_, {from, describe(sent, true, job_rank(options_, to))},
                      {to, describe(posted, false, job_rank(options_, from))});
}

}}}  // namespace tandem::v0::distributed::shm
