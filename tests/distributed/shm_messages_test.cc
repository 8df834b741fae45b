// Point-to-point messages over shared memory between threads: order, tags, sizes, concurrency and failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/distributed/backends/collective.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

/// A message with its buffer.
struct Message {
  Message(bool sends, int peer, int tag, int64_t count, int32_t first = -1) : data(static_cast<size_t>(count), -1) {
    if (sends) {
      for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = first + static_cast<int32_t>(i);
    }
    transfer.sends = sends;
    transfer.peer = peer;
    transfer.tag = tag;
    transfer.dtype = kInt32;
    transfer.num_elements = count;
    transfer.shape = {count};
    transfer.data = count == 0 ? nullptr : reinterpret_cast<std::byte*>(data.data());
  }
  Message(const Message&) = delete;

  void expect(int32_t first) const {
    for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], first + static_cast<int32_t>(i)) << "element " << i;
  }

  std::vector<int32_t> data;
  P2pRequest transfer;
};

std::unique_ptr<Message> sending(int peer, int tag, int64_t count, int32_t first) {
  return std::make_unique<Message>(true, peer, tag, count, first);
}
std::unique_ptr<Message> receiving(int peer, int tag, int64_t count) {
  return std::make_unique<Message>(false, peer, tag, count);
}

using Messages = std::vector<std::unique_ptr<Message>>;

void run_all(ShmRank& self, const Messages& messages) {
  std::vector<P2pRequest*> transfers;
  for (const auto& message : messages) transfers.push_back(&message->transfer);
  self.run(transfers);
}

// Rings of one to three chunks of one to three cache lines; no messages, or most of them, are inlined in their
// announcement.
const shm::Tuning kTunings[] = {
    {.small_bytes = 0, .piece_bytes = 64, .pieces = 1},
    {.small_bytes = 64, .piece_bytes = 192, .pieces = 3},
    {},
};

void expect_nothing_thrown(const std::vector<std::string>& thrown) {
  for (const std::string& text : thrown) EXPECT_EQ(text, "");
}

class ShmSendRecv : public ::testing::TestWithParam<int> {};

TEST_P(ShmSendRecv, AllPairsExchangeInBothDirections) {
  for (const shm::Tuning& tuning : kTunings) {
    expect_nothing_thrown(run_shm_threads(GetParam(), tuning, [](ShmRank& self) {
      for (const int64_t count : {0, 1, 3, 7, 31, 32, 33, 1000, 70001}) {
        Messages messages;
        for (int peer = 0; peer < self.size; ++peer) {  // itself included
          messages.push_back(sending(peer, 3, count, self.rank * 100 + peer));
          messages.push_back(receiving(peer, 3, count));
        }
        run_all(self, messages);
        for (int peer = 0; peer < self.size; ++peer) {
          messages[static_cast<size_t>(2 * peer + 1)]->expect(peer * 100 + self.rank);
        }
      }
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmSendRecv, ::testing::ValuesIn(shm_worlds()),
                         [](const auto& param_info) { return str("world", param_info.param); });

TEST(ShmPointToPoint, OrderIsKeptPerTagOnly) {
  for (const shm::Tuning& tuning : kTunings) {
    expect_nothing_thrown(run_shm_threads(2, tuning, [](ShmRank& self) {
      constexpr int kTags = 7;
      constexpr int kOfEach = 5;
      const auto count = [](int tag, int i) { return int64_t{100} * tag + 40 * i; };
      Messages messages;
      if (self.rank == 0) {
        for (int i = 0; i < kOfEach; ++i) {
          for (int tag = 0; tag < kTags; ++tag) messages.push_back(sending(1, tag, count(tag, i), tag * 10 + i));
        }
        run_all(self, messages);
        return;
      }
      for (int tag = kTags - 1; tag >= 0; --tag) {  // one after the other
        for (int i = 0; i < kOfEach; ++i) {
          const auto message = receiving(0, tag, count(tag, i));
          self.run(std::vector<P2pRequest*>{&message->transfer});
          message->expect(tag * 10 + i);
        }
      }
    }));
  }
}

TEST(ShmPointToPoint, UnmatchedSendDoesNotBlockOthers) {
  for (const shm::Tuning& tuning : kTunings) {
    expect_nothing_thrown(run_shm_threads(2, tuning, [](ShmRank& self) {
      const auto late = self.rank == 0 ? sending(1, 99, 5000, 4) : receiving(0, 99, 5000);
      if (self.rank == 0) self.start(late->transfer);
      for (int i = 0; i < 4 * shm::kMaxAnnounced; ++i) {
        const auto one = self.rank == 0 ? sending(1, 1, 50, i) : receiving(0, 1, 50);
        self.run(std::vector<P2pRequest*>{&one->transfer});
        if (self.rank == 1) one->expect(i);
      }
      if (self.rank == 1) self.start(late->transfer);
      self.wait({&late->transfer});
      if (self.rank == 1) late->expect(4);
    }));
  }
}

TEST(ShmPointToPoint, MessagesBeyondAnnouncementLimitComplete) {
  expect_nothing_thrown(run_shm_threads(2, {}, [](ShmRank& self) {
    Messages messages;
    for (int i = 0; i < 3 * shm::kMaxAnnounced; ++i) {
      messages.push_back(self.rank == 0 ? sending(1, i % 3, i, i) : receiving(0, i % 3, i));
    }
    run_all(self, messages);
    for (int i = 0; i < 3 * shm::kMaxAnnounced; ++i) messages[static_cast<size_t>(i)]->expect(i);
  }));
}

TEST(ShmPointToPoint, TransfersCompleteDuringBarriers) {
  for (const shm::Tuning& tuning : kTunings) {
    expect_nothing_thrown(run_shm_threads(3, tuning, [](ShmRank& self) {
      const int next = (self.rank + 1) % 3;
      const int before = (self.rank + 2) % 3;
      const auto out = sending(next, 0, 30000, self.rank);
      const auto in = receiving(before, 0, 30000);
      self.start(in->transfer);
      self.start(out->transfer);
      Collective barrier;
      for (int i = 0; i < 5; ++i) self.run(barrier);
      self.wait({&in->transfer, &out->transfer});
      in->expect(before);
    }));
  }
}

// Every rank derives the same program: all messages, and the order in which each rank starts its own.
TEST(ShmPointToPoint, RandomProgramsDeliverAllMessages) {
  for (const shm::Tuning& tuning : kTunings) {
    expect_nothing_thrown(run_shm_threads(4, tuning, [](ShmRank& self) {
      std::mt19937 random(23);
      std::mt19937 order(static_cast<unsigned>(self.rank));
      for (int round = 0; round < 20; ++round) {
        Messages messages;
        std::vector<int32_t> wanted;
        for (int i = 0; i < 40; ++i) {
          const int from = static_cast<int>(random() % 4);
          const int to = static_cast<int>(random() % 4);
          const int tag = i;  // unique, so any order is allowed
          const int64_t count = static_cast<int64_t>(random() % 5 == 0 ? random() % 3000 : random() % 30);
          if (self.rank == from) messages.push_back(sending(to, tag, count, i));
          if (self.rank == from) wanted.push_back(i);
          if (self.rank == to) messages.push_back(receiving(from, tag, count));
          if (self.rank == to) wanted.push_back(i);
        }
        std::vector<P2pRequest*> transfers;
        for (const auto& message : messages) transfers.push_back(&message->transfer);
        std::shuffle(transfers.begin(), transfers.end(), order);
        self.run(transfers);
        for (size_t i = 0; i < messages.size(); ++i) messages[i]->expect(wanted[i]);
      }
    }));
  }
}

// --- what ends them ---

std::string place(const std::source_location& where) { return str(where.file_name(), ":", where.line()); }

TEST(ShmPointToPoint, MismatchShowsBothCallsAndKeepsData) {
  struct Case {
    int64_t count;
    DType dtype;
    std::string name;
    std::string shown;
  };
  const Case cases[] = {{5, kInt32, "x", "int32 [5] from rank 1 tag 7, 'x'"},
                        {4, kFloat32, "x", "float32 [4] from rank 1 tag 7, 'x'"},
                        {4, kInt32, "y", "int32 [4] from rank 1 tag 7, 'y'"}};
  for (const Case& c : cases) {
    const auto here = std::source_location::current();
    const auto thrown = run_shm_threads(2, {}, [&](ShmRank& self) {
      Message message(self.rank == 1, 1 - self.rank, 7, 5, 50);
      P2pRequest& t = message.transfer;
      t.num_elements = self.rank == 0 ? c.count : 4;
      t.dtype = self.rank == 0 ? c.dtype : kInt32;
      t.name = self.rank == 0 ? c.name : "x";
      t.name_hash = hash_name(t.name);
      t.shape = {t.num_elements};
      t.where = here;
      try {
        self.run(std::vector<P2pRequest*>{&t});
      } catch (const GroupError& e) {
        EXPECT_EQ(e.culprit(), 1 - self.rank);
        if (self.rank == 0) {
          EXPECT_EQ(message.data, std::vector<int32_t>(5, -1));
        }
        throw;
      }
    });
    const std::string text = str(": calls do not match across ranks\n  rank 0  recv ", c.shown, ", ", place(here),
                                 "\n  rank 1  send int32 [4] to rank 0 tag 7, 'x', ", place(here));
    EXPECT_EQ(thrown, std::vector<std::string>(2, text));
  }
}

TEST(ShmPointToPoint, AbortFailsPendingTransfersOnAllRanks) {
  std::atomic<int> started{0};
  const auto thrown = run_shm_threads(3, {.small_bytes = 0}, [&](ShmRank& self) {
    const auto message = self.rank == 0 ? sending(1, 0, 9, 0) : receiving(0, 5, 9);  // tag 5 is never sent
    if (self.rank == 2) {
      while (started.load() < 2) std::this_thread::yield();
      self.backend->fail(2, "out of data");
      return;
    }
    self.start(message->transfer);
    ++started;
    self.wait({&message->transfer});
  });
  EXPECT_EQ(thrown, (std::vector<std::string>{" failed\n  rank 2: out of data", " failed\n  rank 2: out of data", ""}));
}

TEST(ShmPointToPoint, OnlyFailureOfPeerEndsTransfer) {
  const auto thrown = run_shm_threads(3, {}, [&](ShmRank& self) {
    if (self.rank == 2) return;
    self.backend->note_end(2, "left the job");
    const auto message = self.rank == 0 ? sending(1, 0, 9, 3) : receiving(0, 0, 9);
    self.run(std::vector<P2pRequest*>{&message->transfer});
    if (self.rank == 1) message->expect(3);
    const auto lost = self.rank == 0 ? sending(2, 0, 9, 3) : receiving(2, 0, 9);
    self.run(std::vector<P2pRequest*>{&lost->transfer});
  });
  EXPECT_EQ(thrown,
            (std::vector<std::string>{" failed\n  rank 2: left the job", " failed\n  rank 2: left the job", ""}));
}

TEST(ShmPointToPoint, FinishedTransferCompletesAfterPeerLeaves) {
  for (const shm::Tuning& tuning : kTunings) {
    std::atomic<bool> received{false};
    expect_nothing_thrown(run_shm_threads(2, tuning, [&](ShmRank& self) {
      if (self.rank == 1) {
        const auto in = receiving(0, 0, 40);
        self.run(std::vector<P2pRequest*>{&in->transfer});
        received = true;
        return;
      }
      const auto out = sending(1, 0, 40, 8);
      self.start(out->transfer);
      while (!received.load()) self.backend->do_advance_p2p();
      self.backend->note_end(1, "left the job");
      self.wait({&out->transfer});
    }));
  }
}

}}}}  // namespace tandem::v0::distributed
