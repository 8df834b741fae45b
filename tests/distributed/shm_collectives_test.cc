// Every collective over shared memory among threads, with rings so short that all of them wrap, against closed forms.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/collective.h>
#include <tandem/tests/distributed/shm_cases.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

// Slots of a few lines, rounds of a few lines, rings of one to three rounds.
const shm::Tuning kTunings[] = {
    {.slot_bytes = 64, .chunk_bytes = 128, .whole_bytes = 1024, .slots = 2},
    {.slot_bytes = 512, .chunk_bytes = 64, .whole_bytes = 0, .slots = 1},
    {.slot_bytes = 0, .chunk_bytes = 704, .whole_bytes = 100000, .slots = 3},
    {},
};

class ShmCollectives : public testing::TestWithParam<int> {};

TEST_P(ShmCollectives, HaveTheirValuesAtEverySize) {
  for (const shm::Tuning& tuning : kTunings) {
    const auto thrown = run_shm_threads(GetParam(), tuning, [](ShmRank& self) {
      for (const int64_t count : {0, 1, 3, 7, 31, 32, 33, 500, 4099}) {
        for (int variant = 0; variant < kVariants; ++variant) {
          run_variant(self, variant, count);
        }
      }
    });
    for (const std::string& text : thrown) {
      EXPECT_EQ(text, "");
    }
  }
}

// Slots and rings are used again by other kinds, in orders that nobody has thought of.
TEST_P(ShmCollectives, FollowEachOtherInAnyOrder) {
  for (const shm::Tuning& tuning : kTunings) {
    const auto thrown = run_shm_threads(GetParam(), tuning, [](ShmRank& self) {
      std::mt19937 random(17);  // the same on all ranks
      for (int i = 0; i < 300; ++i) {
        const int variant = static_cast<int>(random() % kVariants);
        const int64_t count = static_cast<int64_t>(random() % 3 == 0 ? random() % 900 : random() % 40);
        run_variant(self, variant, count);
      }
    });
    for (const std::string& text : thrown) {
      EXPECT_EQ(text, "");
    }
  }
}

TEST(ShmCollective, PeersSeeWhatARankStartedLast) {
  const std::string long_name(200, 'x');
  const auto thrown = run_shm_threads(2, {}, [&](ShmRank& self) {
    Values data = values(0, 0, 9);
    Collective c = make(CollectiveKind::kAllReduce, 9);
    c.input = c.output = bytes_of(data);
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

TEST(ShmCollective, WithoutDataComparesSignaturesOnly) {
  const auto thrown = run_shm_threads(3, {}, [&](ShmRank& self) {
    Values data = values(self.rank, 0, 70000);
    Collective c = make(CollectiveKind::kAllReduce, 70000);
    c.input = c.output = bytes_of(data);
    c.moves_data = false;
    self.run(c);
    expect_same(data, values(self.rank, 0, 70000));
    c.num_elements = self.rank == 0 ? 70000 : 69999;
    self.run(c);
  });
  for (const std::string& text : thrown) {
    EXPECT_NE(text.find("ranks do not agree on what to exchange"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmCollectives, testing::Values(1, 2, 3, 4, 7),
                         [](const auto& param_info) { return str("world", param_info.param); });

}  // namespace
}  // namespace tandem::inline v0::distributed
