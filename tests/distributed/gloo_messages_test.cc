// Point-to-point messages over gloo between threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include <tandem/distributed/backends/gloo/gloo_backend.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
namespace gl = td::distributed::gloo;
using Bytes = std::vector<std::byte>;

MakeBackend make_backend_with(gl::Tuning tuning) {
  return [tuning](const ProcessGroupOptions& options) { return gl::make_gloo_backend(options, tuning); };
}
constexpr gl::Tuning kSmall{.chunk_bytes = 8 << 10, .slots = 3, .records = 12};

Bytes filled(int64_t num_bytes, int salt) {
  Bytes bytes(static_cast<size_t>(num_bytes));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<size_t>(salt));
  return bytes;
}

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

class GlooMessages : public testing::TestWithParam<int> {};

TEST_P(GlooMessages, AllPairsReceiveEveryTagAndSize) {
  const int n = GetParam();
  const std::vector<int64_t> sizes = {0, 1, 8191, 8192, 8193, 100003, td::testing::kThreadSanitizer ? 200003 : 1000003};
  run_backend_ranks(n, make_backend_with(kSmall), [&](Backend& backend, int rank) {
    std::vector<Bytes> sent;
    std::vector<Bytes> received;
    std::vector<P2pRequest> transfers;
    sent.reserve(sizes.size() * static_cast<size_t>(n));
    received.reserve(sizes.size() * static_cast<size_t>(n));
    const auto salt = [](int from, int to, size_t i) { return from * 7 + to * 3 + static_cast<int>(i); };
    for (int peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      for (size_t i = 0; i < sizes.size(); ++i) {
        sent.push_back(filled(sizes[i], salt(rank, peer, i)));
        transfers.push_back(message(true, peer, static_cast<int>(i), sent.back()));
      }
      for (size_t i = sizes.size(); i-- > 0;) {  // receives are posted in reverse order
        received.emplace_back(static_cast<size_t>(sizes[i]));
        transfers.push_back(message(false, peer, static_cast<int>(i), received.back()));
      }
    }
    run_transfers(backend, transfers);
    for (const P2pRequest& t : transfers) {
      if (t.sends) continue;
      const Bytes want = filled(t.num_elements, salt(t.peer, rank, static_cast<size_t>(t.tag)));
      if (!std::equal(want.begin(), want.end(), t.data)) throw td::StateError(td::str("message ", t.tag));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, GlooMessages, testing::Values(2, 3, 4, 7));

TEST(GlooMessages, SameTagArrivesInOrderDuringPendingCollective) {
  // Rank 0's collective cannot complete before rank 1 has its messages: messages overtake it.
  run_backend_ranks(2, make_backend_with(kSmall), [](Backend& backend, int rank) {
    Bytes tensor = filled(1 << 20, rank);
    Collective c;
    c.kind = CollectiveKind::kBroadcast;
    c.dtype = td::kUInt8;
    c.root = 0;
    c.seq = 1;
    c.num_elements = 1 << 20;
    c.input = c.output = tensor.data();
    std::vector<Bytes> bytes;
    bytes.reserve(10);
    std::vector<P2pRequest> transfers;
    for (int i = 0; i < 10; ++i) {
      bytes.push_back(rank == 0 ? filled(50000, i) : Bytes(50000));
      transfers.push_back(message(rank == 0, 1 - rank, 5, bytes.back()));
    }
    if (rank == 0) backend.do_start(c);
    run_transfers(backend, transfers);
    for (int i = 0; i < 10; ++i) {
      if (bytes[static_cast<size_t>(i)] != filled(50000, i)) throw td::StateError("order");
    }
    if (rank == 1) backend.do_start(c);
    finish_collective(backend);
    if (tensor != filled(1 << 20, 0)) throw td::StateError("broadcast");
  });
}

TEST(GlooMessages, SizeMismatchIsReportedOnBothRanks) {
  for (const int64_t size : {int64_t{64}, int64_t{100000}}) {
    const std::vector<std::string> errors =
        try_backend_ranks(2, make_backend_with({}), [&](Backend& backend, int rank) {
          Bytes bytes = filled(size + rank, 1);
          std::vector<P2pRequest> transfers = {message(rank == 0, 1 - rank, 3, bytes)};
          transfers[0].name = "halo";
          try {
            run_transfers(backend, transfers);
          } catch (const GroupError&) {
            if (!transfers[0].failed) throw td::StateError("not marked as failed");
            throw;
          }
        });
    const auto& where = std::source_location();
    const std::string want =
        td::str(": calls do not match across ranks\n  rank 0  send uint8 [", size, "] to rank 1 tag 3, 'halo', ",
                where.file_name(), ":", where.line(), "\n  rank 1  recv uint8 [", size + 1,
                "] from rank 0 tag 3, 'halo', ", where.file_name(), ":", where.line());
    EXPECT_EQ(errors[0], want);
    EXPECT_EQ(errors[1], want);
  }
}

TEST(GlooMessages, FailedPeerIsReportedToSendersAndReceivers) {
  for (const bool sends : {true, false}) {
    const std::vector<std::string> errors =
        try_backend_ranks(3, make_backend_with({}), [&](Backend& backend, int rank) {
          Bytes bytes = filled(1 << 20, 1);
          if (rank == 2) throw td::StateError("no disk");
          std::vector<P2pRequest> transfers = {message(sends, 2, 3, bytes)};
          run_transfers(backend, transfers);
        });
    EXPECT_EQ(errors[0], " failed\n  rank 2: no disk");
    EXPECT_EQ(errors[1], " failed\n  rank 2: no disk");
  }
}

TEST(GlooMessages, InvalidAnswerToOfferIsRejected) {
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
        mesh.take(frames);
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
      await(gl::FrameType::kPoison);
    });
    const auto backend = gl::make_gloo_backend(options_of(0), kSmall);
    Bytes bytes = filled(c.size, 1);
    std::vector<P2pRequest> transfers = {message(true, 1, 3, bytes)};
    std::string error = "nothing";
    try {
      run_transfers(*backend, transfers);
    } catch (const GroupError& e) {
      error = e.what();
      EXPECT_EQ(e.culprit(), 1);
      backend->do_abort(e.culprit(), e.reason());
    }
    EXPECT_EQ(error, " failed\n  rank 1: " + c.error);
  }
}

TEST(GlooMessages, AbortedReceiveBufferIsNotWritten) {
  std::promise<void> aborted;
  std::promise<void> looked;
  Bytes sent = filled(20000, 1);
  Bytes received(20000);
  run_backend_ranks(2, make_backend_with(kSmall), [&](Backend& backend, int rank) {
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
    backend.do_abort(0, "gave up");
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
