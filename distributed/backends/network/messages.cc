#include <tandem/distributed/backends/network/messages.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <tandem/distributed/backends/backend.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

using Kind = AnswerFrame::Kind;

/// Whether the offer contains the data.
bool is_in_offer(const P2pRequest& transfer, uint64_t sender_gpu) {
  return sender_gpu == 0 && transfer.num_bytes() <= static_cast<int64_t>(kInlineBytes);
}
bool is_in_offer(const P2pRequest& sent) { return is_in_offer(sent, sent.gpu); }

MessageFrame frame_of(const P2pRequest& transfer) {
  MessageFrame frame;
  static_cast<MessageSignature&>(frame) = transfer;
  frame.gpu = transfer.gpu;
  frame.shape = transfer.shape;
  frame.name = transfer.name;
  frame.file = transfer.where.file_name();
  frame.line = transfer.where.line();
  return frame;
}

std::string describe(const MessageFrame& frame, bool sends, int shown_peer) {
  return describe_call(frame, sends, shown_peer, frame.shape, frame.name, frame.file, frame.line);
}

/// Finds the message with this id in a list of messages to or from `rank`. Throws if there is none: `rank` has sent an
/// invalid frame.
template <class List>
auto find_id(const ProcessGroupOptions& options, int rank, List& list, uint64_t id) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.id == id; });
  if (found == list.end()) throw_peer_error(options, rank, "gloo: received a frame of an unknown message");
  return found;
}

}  // namespace

P2pMatcher::P2pMatcher(const ProcessGroupOptions& options, const Tuning& tuning, Mesh& mesh)
    : options_(options), tuning_(tuning), mesh_(mesh), peers_(static_cast<size_t>(options.world_size)) {}

void P2pMatcher::start(P2pRequest& transfer) {
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  if (!transfer.sends) {
    peer.posted.push_back(&transfer);
    return;
  }
  MessageFrame offer = frame_of(transfer);
  offer.id = ++peer.last_id;
  transfer.number = static_cast<int64_t>(offer.id);
  if (is_in_offer(transfer)) {
    offer.data.assign(reinterpret_cast<const char*>(transfer.data), static_cast<size_t>(transfer.num_bytes()));
  }
  peer.sending.push_back({offer.id, &transfer});
  mesh_.link(transfer.peer).send(FrameType::kOffer, encode(offer));
}

// --- received frames ---

void P2pMatcher::take(Frame& frame) {
  moved_ = true;
  Peer& peer = peers_[static_cast<size_t>(frame.peer)];
  switch (frame.type) {
    case FrameType::kOffer: peer.offers.push_back(decode_message(frame.payload)); break;
    case FrameType::kAnswer: peer.answers.push_back(decode_answer(frame.payload)); break;
    default: take_data(peer, frame);
  }
}

void P2pMatcher::take_data(Peer& peer, Frame& frame) {
  const auto message = find_id(options_, frame.peer, peer.receiving, frame.channel & ~kMessageBit);
  P2pRequest& transfer = *message->transfer;
  message->arrived += frame.data_bytes;  // it was received into the transfer's memory
  if (message->arrived < transfer.num_bytes()) return;
  transfer.done = true;
  mesh_.link(frame.peer).send(FrameType::kAnswer, encode(AnswerFrame{message->id, Kind::kDone, {}}));
  peer.receiving.erase(message);
}

void P2pMatcher::take_answer(int rank, const AnswerFrame& answer) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const auto message = find_id(options_, rank, peer.sending, answer.id);
  switch (answer.kind) {
    case Kind::kSend:
      if (is_in_offer(*message->transfer))
        throw_peer_error(options_, rank, "gloo: received a request for a message that was already sent");
      if (message->is_wanted) throw_peer_error(options_, rank, "gloo: received a second request for a message");
      message->is_wanted = true;
      if (message->transfer->gpu != 0) message->transfer->stage();
      return;
    case Kind::kDirect:
      if (message->transfer->gpu == 0 || message->is_wanted) {
        throw_peer_error(options_, rank,
                         "gloo: received an acknowledgement of a direct message for one that is not direct");
      }
      message->transfer->direct = true;
      break;
    case Kind::kDone:
      // The caller may reuse the memory after this. Small messages were sent inside their offers.
      if (!is_in_offer(*message->transfer) &&
          (message->sent < message->transfer->num_bytes() || mesh_.link(rank).sent_data() < message->last_index)) {
        throw_peer_error(options_, rank, "gloo: received an acknowledgement of a message that was not sent yet");
      }
      break;
    case Kind::kMismatch:
      message->transfer->failed = true;
      throw_mismatch(options_.rank, frame_of(*message->transfer), rank, answer.posted);
  }
  message->transfer->done = true;
  peer.sending.erase(message);
}

// --- progress ---

bool P2pMatcher::advance() {
  bool moved = std::exchange(moved_, false);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    for (; !peer.answers.empty(); peer.answers.pop_front()) {
      take_answer(rank, peer.answers.front());
      moved = true;
    }
    // Messages with the same tag are matched in order.
    moved |= match_messages(
        peer.posted, peer.offers, [](const MessageFrame& offer) { return offer.tag; },
        [&](P2pRequest& transfer, const MessageFrame& offer) { accept(rank, offer, transfer); });
    moved |= send(rank);
  }
  return moved;
}

void P2pMatcher::accept(int rank, const MessageFrame& offer, P2pRequest& transfer) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  AnswerFrame answer;
  answer.id = offer.id;
  if (offer != transfer) {
    answer.kind = Kind::kMismatch;
    answer.posted = frame_of(transfer);
    mesh_.link(rank).send(FrameType::kAnswer, encode(answer));
    transfer.failed = true;
    throw_mismatch(rank, offer, options_.rank, answer.posted);
  }
  const int64_t num_bytes = transfer.num_bytes();
  const bool has_data = is_in_offer(transfer, offer.gpu);
  if (static_cast<int64_t>(offer.data.size()) != (has_data ? num_bytes : 0)) {
    throw_peer_error(options_, rank, "gloo: received a message with a wrong data length");
  }
  transfer.number = static_cast<int64_t>(offer.id);
  transfer.direct = is_direct(offer.gpu, transfer.gpu);
  if (!transfer.direct && transfer.gpu != 0) transfer.stage();
  if (transfer.direct) {
    transfer.done = true;
    answer.kind = Kind::kDirect;
  } else if (has_data) {
    if (num_bytes > 0) std::memcpy(transfer.data, offer.data.data(), static_cast<size_t>(num_bytes));
    transfer.done = true;
    answer.kind = Kind::kDone;
  } else {
    peer.receiving.push_back({offer.id, &transfer});
    mesh_.link(rank).post(kMessageBit | offer.id, 0, 0, transfer.data, num_bytes);
    answer.kind = Kind::kSend;
  }
  mesh_.link(rank).send(FrameType::kAnswer, encode(answer));
}

/// Sends one chunk of each message in turn while the connection has space.
bool P2pMatcher::send(int rank) {
  bool moved = false;
  for (bool any = true; any;) {
    any = false;
    for (Sending& message : peers_[static_cast<size_t>(rank)].sending) {
      const P2pRequest& transfer = *message.transfer;
      const int64_t num_bytes = std::min(tuning_.chunk_bytes, transfer.num_bytes() - message.sent);
      if (!message.is_wanted || transfer.data == nullptr || num_bytes == 0) continue;
      const uint64_t index = mesh_.link(rank).try_send_data(
          transfer.data + message.sent, num_bytes, kMessageBit | message.id, 0, static_cast<uint64_t>(message.sent));
      if (index == 0) return moved;
      message.last_index = index;
      message.sent += num_bytes;
      any = moved = true;
    }
  }
  return moved;
}

void P2pMatcher::throw_mismatch(int from, const MessageFrame& sent, int to, const MessageFrame& posted) const {
  throw_call_mismatch(options_, {from, describe(sent, true, job_rank(options_, to))},
                      {to, describe(posted, false, job_rank(options_, from))});
}

}}}  // namespace tandem::v0::distributed::network
