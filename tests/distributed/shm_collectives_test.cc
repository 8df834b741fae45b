// Every collective over shared memory between threads, with rings short enough to wrap, against closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/backends/shm/join.h>
#include <tandem/tests/distributed/backend_checks.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

// Slots and rounds of a few cache lines, rings of one to three rounds, and both kinds of stores.
const shm::Tuning kTunings[] = {
    {.slot_bytes = 64, .chunk_bytes = 128, .one_shot_bytes = 1024, .slots = 2},
    {.slot_bytes = 512, .chunk_bytes = 64, .one_shot_bytes = 0, .slots = 1},
    {.slot_bytes = 0, .chunk_bytes = 704, .one_shot_bytes = 100000, .slots = 3},
    {.slot_bytes = 0, .chunk_bytes = 4480, .one_shot_bytes = 9000, .streamed_bytes = 0, .trial_bytes = 1, .slots = 2},
    {},
};

BackendChecks checks_of(ShmRank& self) {
  return {self.rank, self.size, kInt32, ReduceOp::kSum, [&self](Collective& c) { self.run(c); }};
}

class ShmCollectives : public ::testing::TestWithParam<int> {};

TEST_P(ShmCollectives, MatchClosedFormAtEverySize) {
  for (const shm::Tuning& tuning : kTunings) {
    const auto thrown = run_shm_threads(GetParam(), tuning, [](ShmRank& self) {
      for (const int64_t count : {0, 1, 3, 7, 31, 32, 33, 500, 4099}) {
        for (int variant = 0; variant < BackendChecks::kVariants; ++variant) checks_of(self).variant(variant, count);
      }
    });
    for (const std::string& text : thrown) {
      EXPECT_EQ(text, "");
    }
  }
}

// Slots and rings are reused by other kinds in random order.
TEST_P(ShmCollectives, RandomSequencesMatchClosedForm) {
  for (const shm::Tuning& tuning : kTunings) {
    const auto thrown = run_shm_threads(GetParam(), tuning, [](ShmRank& self) {
      std::mt19937 random(17);  // equal on all ranks
      for (int i = 0; i < 300; ++i) {
        const int variant = static_cast<int>(random() % BackendChecks::kVariants);
        const int64_t count = static_cast<int64_t>(random() % 3 == 0 ? random() % 900 : random() % 40);
        checks_of(self).variant(variant, count);
      }
    });
    for (const std::string& text : thrown) {
      EXPECT_EQ(text, "");
    }
  }
}

TEST(ShmBackend, PeersSeeLastStartedCollective) {
  const std::string long_name(200, 'x');
  const auto thrown = run_shm_threads(2, {}, [&](ShmRank& self) {
    Bytes data = checks_of(self).sent(0, 0, 9);
    Collective c = make(CollectiveKind::kAllReduce, kInt32, 9);
    c.input = c.output = data.data();
    const auto expect_seen = [&](int64_t seq, const std::string& what) {
      if (self.rank == 0) return;
      while (self.backend->do_last_started(0).seq < seq) std::this_thread::yield();
      EXPECT_EQ(self.backend->do_last_started(0).what, what);
      EXPECT_GE(self.backend->do_last_started(0).ago.count(), 0);
    };
    EXPECT_EQ(self.backend->do_last_started(self.rank).what, "");
    c.name = "bucket 3 of 7";
    expect_seen(1, "all_reduce 'bucket 3 of 7'");
    self.run(c);
    c.name = "";
    expect_seen(2, "all_reduce");
    self.run(c);
    c.name = long_name;
    expect_seen(3, str("all_reduce '", long_name.substr(0, 102), "'"));
    self.run(c);
    c.name = "short";
    expect_seen(4, "all_reduce 'short'");
    self.run(c);
  });
  for (const std::string& text : thrown) EXPECT_EQ(text, "");
}

// Sums of equal values are bit-identical for every collective and every split.
TEST(ShmBackend, SumsHaveEqualBitsInAllKinds) {
  for (const shm::Tuning& tuning : kTunings) {
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16}) {
      const auto thrown = run_shm_threads(4, tuning, [&](ShmRank& self) {
        constexpr int64_t kPart = 1100;
        const auto num_bytes = static_cast<size_t>(4 * kPart * size_of(dtype));
        std::mt19937 random(static_cast<unsigned>(self.rank + 3));
        std::vector<std::byte> in(num_bytes);
        visit_floating_dtype(dtype, [&]<class T>() {
          T* const elements = reinterpret_cast<T*>(in.data());
          for (int64_t i = 0; i < 4 * kPart; ++i)
            elements[i] = static_cast<T>(static_cast<float>(random()) * 1e-9f - 2);
        });
        std::vector<std::byte> all(num_bytes);
        std::vector<std::byte> reduced(num_bytes);
        std::vector<std::byte> part(num_bytes / 4);
        Collective c = make(CollectiveKind::kAllReduce, dtype, 4 * kPart);
        c.op = ReduceOp::kAvg;
        c.input = in.data();
        c.output = all.data();
        self.run(c);
        c.kind = CollectiveKind::kReduce;
        c.root = 2;
        c.output = reduced.data();
        self.run(c);
        c.kind = CollectiveKind::kReduceScatter;
        c.root = -1;
        c.num_elements = kPart;
        c.output = part.data();
        for (size_t to = 0; to < 4; ++to) c.inputs.push_back({in.data() + to * part.size(), kPart});
        self.run(c);
        EXPECT_EQ(reduced == all, self.rank == 2);  // unchanged on other ranks
        const size_t begin = static_cast<size_t>(self.rank) * part.size();
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
      });
      for (const std::string& text : thrown) EXPECT_EQ(text, "");
    }
  }
}

// --- mismatches ---

std::string place(const std::source_location& where) { return str(where.file_name(), ":", where.line()); }

constexpr const char* kDisagree = ": calls do not match across ranks";

TEST(ShmConsistencyCheck, SignatureMismatchIsShownOnAllRanks) {
  const auto here = std::source_location::current();
  struct Case {
    std::function<void(Collective&)> change;
    std::string shown;
  };
  const Case cases[] = {
      {[](Collective& c) { c.kind = CollectiveKind::kGather; }, "gather to 1 int32 [40], 'x', "},
      {[](Collective& c) { c.op = ReduceOp::kMax; }, "reduce max to 1 int32 [40], 'x', "},
      {[](Collective& c) { c.dtype = kFloat32; }, "reduce sum to 1 float32 [40], 'x', "},
      {[](Collective& c) { c.root = 3; }, "reduce sum to 3 int32 [40], 'x', "},
      {[](Collective& c) {
         c.num_elements = 39;
         c.shape = {3, 13};
       },
       "reduce sum to 1 int32 [3, 13], 'x', "},
      {[](Collective& c) {
         c.shape = {5, 8};
         c.shape_hash = hash_shape(c.shape);
       },
       "reduce sum to 1 int32 [5, 8], 'x', "},
      {[](Collective& c) {
         c.name = "y";
         c.name_hash = hash_name(c.name);
       },
       "reduce sum to 1 int32 [40], 'y', "},
  };
  for (const Case& other : cases) {
    const auto thrown = run_shm_threads(4, kTunings[0], [&](ShmRank& self) {
      const BackendChecks checks = checks_of(self);
      Bytes data = checks.sent(0, 0, 40);
      std::vector<Bytes> parts(4, data);
      Collective c = make(CollectiveKind::kReduce, kInt32, 40, 1);
      c.input = c.output = data.data();
      c.outputs = checks.parts_of(parts);
      c.name = "x";
      c.name_hash = hash_name(c.name);
      c.where = here;
      if (self.rank == 2) other.change(c);
      try {
        self.run(c);
      } catch (const GroupError& e) {
        checks.expect_same(c, data, checks.sent(0, 0, 40));
        EXPECT_EQ(e.culprit() == 2, self.rank != 2);
        throw;
      }
    });
    const auto line = [&](int rank) {
      return str("\n  rank ", rank, "  ", rank == 2 ? other.shown : "reduce sum to 1 int32 [40], 'x', ", place(here));
    };
    for (const int rank : {0, 1, 3}) {
      EXPECT_EQ(thrown[static_cast<size_t>(rank)], kDisagree + line(std::min(rank, 2)) + line(std::max(rank, 2)));
    }
    // Rank 2 differs from all others: it shows the one that it met first.
    EXPECT_THAT(thrown[2], ::testing::AnyOf(kDisagree + line(0) + line(2), kDisagree + line(1) + line(2),
                                            kDisagree + line(2) + line(3)));
  }
}

TEST(ShmConsistencyCheck, AllToAllCountMismatchIsShownEverywhere) {
  const auto here = std::source_location::current();
  for (const int64_t count : {3, 600}) {  // in slots, and in rounds
    const auto thrown = run_shm_threads(4, kTunings[0], [&](ShmRank& self) {
      const BackendChecks checks = checks_of(self);
      std::vector<Bytes> in(4, checks.sent(self.rank, 0, count));
      std::vector<Bytes> out(4, checks.untouched(count));
      if (self.rank == 3) out[1] = checks.untouched(count + 2);
      Collective c = make(CollectiveKind::kAllToAll, kInt32, 0);
      c.shape = {4, count};
      c.where = here;
      c.inputs = checks.parts_of(in);
      c.outputs = checks.parts_of(out);
      try {
        self.run(c);
      } catch (const GroupError& e) {
        for (size_t to = 0; to < 4; ++to) {
          checks.expect_same(c, out[to], checks.untouched(self.rank == 3 && to == 1 ? count + 2 : count));
        }
        EXPECT_EQ(e.culprit(), self.rank == 1 ? 3 : 1);
        throw;
      }
    });
    const std::string call = str("all_to_all int32 [4, ", count, "], ", place(here));
    EXPECT_EQ(thrown,
              std::vector<std::string>(4, str(kDisagree, "\n  rank 1  sends int32 [", count, "] to rank 3: ", call,
                                              "\n  rank 3  expects int32 [", count + 2, "] from rank 1: ", call)));
  }
}

TEST(ShmBackend, CollectiveWithoutDataComparesSignaturesOnly) {
  const auto thrown = run_shm_threads(3, {}, [&](ShmRank& self) {
    const BackendChecks checks = checks_of(self);
    Bytes data = checks.sent(self.rank, 0, 70000);
    Collective c = make(CollectiveKind::kAllReduce, kInt32, 70000);
    c.input = c.output = data.data();
    c.moves_data = false;
    self.run(c);
    checks.expect_same(c, data, checks.sent(self.rank, 0, 70000));
    c.num_elements = self.rank == 0 ? 70000 : 69999;
    self.run(c);
  });
  for (const std::string& text : thrown) {
    EXPECT_NE(text.find("calls do not match across ranks"), std::string::npos) << text;
  }
}

TEST(ShmMemory, UnusedGroupOccupiesHeaderAndSlots) {
  const shm::Layout layout(2, shm::Tuning());
  const auto store = make_memory_store();
  const auto join = [&](int rank) { return shm::join({.store = store, .rank = rank, .world_size = 2}, layout); };
  std::future<std::shared_ptr<shm::Mapping>> other = std::async(std::launch::async, join, 1);
  const auto mapping = join(0);
  for (std::byte* const segment : mapping->segments) {
    std::vector<unsigned char> pages(layout.total / shm::page_bytes());
    ASSERT_EQ(mincore(segment, layout.total, pages.data()), 0);
    const auto is_resident = [](unsigned char page) { return (page & 1) != 0; };
    const auto count = static_cast<size_t>(std::count_if(pages.begin(), pages.end(), is_resident));
    EXPECT_LE(count * shm::page_bytes(), 200u << 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmCollectives, ::testing::ValuesIn(shm_worlds()),
                         [](const auto& param_info) { return str("world", param_info.param); });

}}}}  // namespace tandem::v0::distributed
