// Point-to-point messages over the network backend between threads.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tests/distributed/backend_ranks.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
namespace gl = td::distributed::network;
using Bytes = std::vector<std::byte>;

constexpr gl::Tuning kSmall{.chunk_bytes = 8 << 10};

Bytes filled(int64_t num_bytes) { return Bytes(static_cast<size_t>(num_bytes), std::byte{7}); }

P2pRequest message(bool sends, int peer, int tag, Bytes& bytes) {
  P2pRequest t;
  t.sends = sends;
  t.peer = peer;
  t.tag = tag;
  t.dtype = td::kUInt8;
  t.num_elements = static_cast<int64_t>(bytes.size());
  t.shape = {t.num_elements};
  t.data = bytes.data();
  return t;
}

TEST(NetworkMessages, InvalidAnswerToOfferIsRejected) {
  using Kind = gl::AnswerFrame::Kind;
  struct Case {
    int64_t size;
    Kind answer;
    std::string error;
  };
  const Case cases[] = {
      {100000, Kind::kDone, "gloo: received an acknowledgement of a message that was not sent yet"},
      {64, Kind::kSend, "gloo: received a request for a message that was already sent"},
      {64, Kind::kDirect, "gloo: received an acknowledgement of a direct message for one that is not direct"},
  };
  for (const Case& c : cases) {
    const auto store = make_memory_store();
    const auto options_of = [&](int rank) {
      return ProcessGroupOptions{
          .store = store, .rank = rank, .world_size = 2, .timeout = std::chrono::seconds(60), .thread_ranks = true};
    };
    const auto receiver = std::async(std::launch::async, [&] {  // without a backend, to send invalid frames
      gl::Mesh mesh(options_of(1), kSmall);
      std::vector<gl::Frame> frames;
      const auto has_come = [&](gl::FrameType type) {
        mesh.take(frames, false);
        for (const gl::Frame& frame : frames) {
          if (frame.type == type) return true;
        }
        return false;
      };
      const auto await = [&](gl::FrameType type) {
        const auto deadline = gl::Mesh::Clock::now() + std::chrono::seconds(60);
        for (bool come = false; !come && gl::Mesh::Clock::now() < deadline;) {
          mesh.sleep([&] { return come = has_come(type); }, deadline);
        }
      };
      await(gl::FrameType::kOffer);
      if (frames.empty()) return;
      const uint64_t id = gl::decode_message(frames[0].payload).id;
      mesh.link(0).send(gl::FrameType::kAnswer, encode(gl::AnswerFrame{id, c.answer, {}}));
      while (mesh.end(0) == nullptr) {
        frames.clear();
        mesh.take(frames, false);
        std::this_thread::yield();
      }
    });
    RankBackend backend(options_of(0), gl::make_network_backend(options_of(0), kSmall));
    Bytes bytes = filled(c.size);
    std::vector<P2pRequest> transfers = {message(true, 1, 3, bytes)};
    std::string error = "nothing";
    try {
      run_transfers(backend, transfers);
    } catch (const GroupError& e) {
      error = e.what();
      EXPECT_EQ(e.culprit(), 1);
      backend.fail(e);
    }
    EXPECT_EQ(error, " failed\n  rank 1: " + c.error);
  }
}

TEST(NetworkMessages, AbortedReceiveBufferIsNotWritten) {
  std::promise<void> aborted;
  std::promise<void> looked;
  Bytes sent = filled(20000);
  Bytes received(20000);
  const auto make = [](const ProcessGroupOptions& options) { return gl::make_network_backend(options, kSmall); };
  run_backend_ranks(2, make, [&](RankBackend& backend, int rank) {
    Collective barrier;
    barrier.seq = 7 + rank;
    P2pRequest transfer = message(rank == 1, 1 - rank, 3, rank == 1 ? sent : received);
    const auto until = [&](const std::function<bool()>& changed) {
      const auto deadline = Backend::Clock::now() + std::chrono::seconds(60);
      for (bool done = false; !done && Backend::Clock::now() < deadline;) {
        backend.do_sleep([&] { return done = changed(); }, deadline);
      }
    };
    if (rank == 1) {
      backend.do_start_p2p(transfer);
      aborted.get_future().wait();
      until([&] {  // receives the request, sends the data, and detects that the receiver left
        try {
          while (backend.do_advance_p2p() == Advance::kMoved) {
          }
          return false;
        } catch (const GroupError&) {
          return true;
        }
      });
      backend.do_start(barrier);  // arrives after the data
      looked.get_future().wait();
      return;
    }
    backend.do_start(barrier);
    backend.do_start_p2p(transfer);
    until([&] { return backend.do_advance_p2p() == Advance::kMoved; });  // requests the data
    backend.fail(0, "gave up");
    aborted.set_value();
    until([&] {
      try {
        while (backend.do_advance() == Advance::kMoved) {
        }
      } catch (const GroupError&) {
      }
      return backend.do_last_started(1).seq == 8;
    });
    looked.set_value();
    if (backend.do_last_started(1).seq != 8) throw td::StateError("nothing came");
    if (received != Bytes(20000)) throw td::StateError("the receive's memory was written");
  });
}

}  // namespace
