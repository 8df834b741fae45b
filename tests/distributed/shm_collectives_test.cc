// Every collective over shared memory among threads, with rings so short that all of them wrap, against closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tandem/distributed/collective.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

using Values = std::vector<int32_t>;

/// Element i of what `from` sends, to `to` where everybody gets something else.
int32_t value(int from, int to, int64_t i) { return static_cast<int32_t>(from * 1000003 + to * 5003 + i * 7 + 1); }

Values values(int from, int to, int64_t count) {
  Values out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = value(from, to, i);
  return out;
}

Values sums(int size, int to, int64_t count) {
  Values out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (int from = 0; from < size; ++from) out[static_cast<size_t>(i)] += value(from, to, i);
  }
  return out;
}

Part part_of(Values& v) {
  return {v.empty() ? nullptr : reinterpret_cast<std::byte*>(v.data()), static_cast<int64_t>(v.size())};
}

std::byte* bytes_of(Values& v) { return part_of(v).data; }

Collective make(CollectiveKind kind, int64_t count, int root = -1) {
  Collective c;
  c.kind = kind;
  c.dtype = kInt32;
  c.num_elements = count;
  c.root = root;
  c.shape = {count};
  return c;
}

constexpr int32_t kUntouched = -77;
Values untouched(int64_t count) { return Values(static_cast<size_t>(count), kUntouched); }

/// Sizes of uneven parts: some are empty, one is much longer than the others.
int64_t uneven(int from, int to, int64_t count) {
  if ((from + 2 * to) % 3 == 1) return 0;
  return from == 1 && to == 0 ? 5 * count : count + from - to + 7;
}

void all_reduce(ShmRank& self, int64_t count, bool in_place) {
  Values in = values(self.rank, 0, count);
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kAllReduce, count);
  c.input = bytes_of(in);
  c.output = in_place ? bytes_of(in) : bytes_of(out);
  self.run(c);
  EXPECT_EQ(in_place ? in : out, sums(self.size, 0, count));
  if (!in_place) {
    EXPECT_EQ(in, values(self.rank, 0, count));
  }
}

void reduce_to(ShmRank& self, int64_t count, int root, bool in_place) {
  Values in = values(self.rank, 0, count);
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kReduce, count, root);
  c.input = bytes_of(in);
  if (self.rank == root) c.output = in_place ? bytes_of(in) : bytes_of(out);
  self.run(c);
  if (self.rank == root) {
    EXPECT_EQ(in_place ? in : out, sums(self.size, 0, count));
  }
  if (self.rank != root || !in_place) {
    EXPECT_EQ(in, values(self.rank, 0, count));
  }
}

void broadcast(ShmRank& self, int64_t count, int root) {
  Values data = self.rank == root ? values(root, 0, count) : untouched(count);
  Collective c = make(CollectiveKind::kBroadcast, count, root);
  c.input = c.output = bytes_of(data);
  self.run(c);
  EXPECT_EQ(data, values(root, 0, count));
}

void gather(ShmRank& self, int64_t count, int root, bool in_place) {
  Values in = values(self.rank, 0, count);
  std::vector<Values> out(static_cast<size_t>(self.size), untouched(count));
  Collective c = make(CollectiveKind::kGather, count, root);
  c.input = bytes_of(in);
  if (self.rank == root) {
    for (Values& v : out) c.outputs.push_back(part_of(v));
    if (in_place) c.outputs[static_cast<size_t>(root)].data = bytes_of(in);
  }
  self.run(c);
  EXPECT_EQ(in, values(self.rank, 0, count));
  for (int from = 0; self.rank == root && from < self.size; ++from) {
    if (from != root || !in_place) {
      EXPECT_EQ(out[static_cast<size_t>(from)], values(from, 0, count));
    }
  }
}

void all_gather(ShmRank& self, int64_t count, bool even, bool in_place) {
  const auto size_of_part = [&](int from) { return even ? count : uneven(from, 0, count); };
  Values in = values(self.rank, 0, size_of_part(self.rank));
  std::vector<Values> out;
  int64_t total = 0;
  for (int from = 0; from < self.size; ++from) {
    out.push_back(untouched(size_of_part(from)));
    total += size_of_part(from);
  }
  Collective c = make(CollectiveKind::kAllGather, total);
  c.input = bytes_of(in);
  for (Values& v : out) c.outputs.push_back(part_of(v));
  if (in_place) c.outputs[static_cast<size_t>(self.rank)].data = bytes_of(in);
  self.run(c);
  EXPECT_EQ(in, values(self.rank, 0, size_of_part(self.rank)));
  for (int from = 0; from < self.size; ++from) {
    if (from != self.rank || !in_place) {
      EXPECT_EQ(out[static_cast<size_t>(from)], values(from, 0, size_of_part(from)));
    }
  }
}

void scatter(ShmRank& self, int64_t count, int root, bool in_place) {
  std::vector<Values> in;
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kScatter, count, root);
  if (self.rank == root) {
    for (int to = 0; to < self.size; ++to) in.push_back(values(root, to, count));
    for (Values& v : in) c.inputs.push_back(part_of(v));
    if (in_place) c.output = c.inputs[static_cast<size_t>(root)].data;
  }
  if (c.output == nullptr) c.output = bytes_of(out);
  self.run(c);
  if (self.rank != root || !in_place) {
    EXPECT_EQ(out, values(root, self.rank, count));
  }
  for (int to = 0; self.rank == root && to < self.size; ++to) {
    EXPECT_EQ(in[static_cast<size_t>(to)], values(root, to, count));
  }
}

void reduce_scatter(ShmRank& self, int64_t count, bool in_place) {
  std::vector<Values> in;
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kReduceScatter, count);
  for (int to = 0; to < self.size; ++to) in.push_back(values(self.rank, to, count));
  for (Values& v : in) c.inputs.push_back(part_of(v));
  Values& result = in_place ? in[static_cast<size_t>(self.rank)] : out;
  c.output = bytes_of(result);
  self.run(c);
  EXPECT_EQ(result, sums(self.size, self.rank, count));
  for (int to = 0; to < self.size; ++to) {
    if (to != self.rank || !in_place) {
      EXPECT_EQ(in[static_cast<size_t>(to)], values(self.rank, to, count));
    }
  }
}

void all_to_all(ShmRank& self, int64_t count, bool even) {
  const auto size_of_part = [&](int from, int to) { return even ? count : uneven(from, to, count); };
  std::vector<Values> in;
  std::vector<Values> out;
  for (int rank = 0; rank < self.size; ++rank) {
    in.push_back(values(self.rank, rank, size_of_part(self.rank, rank)));
    out.push_back(untouched(size_of_part(rank, self.rank)));
  }
  Collective c = make(CollectiveKind::kAllToAll, 0);
  for (Values& v : in) c.inputs.push_back(part_of(v));
  for (Values& v : out) c.outputs.push_back(part_of(v));
  self.run(c);
  for (int rank = 0; rank < self.size; ++rank) {
    EXPECT_EQ(in[static_cast<size_t>(rank)], values(self.rank, rank, size_of_part(self.rank, rank)));
    EXPECT_EQ(out[static_cast<size_t>(rank)], values(rank, self.rank, size_of_part(rank, self.rank)));
  }
}

constexpr int kVariants = 17;

void run_variant(ShmRank& self, int variant, int64_t count) {
  const int last = self.size - 1;
  const int middle = self.size / 2;
  switch (variant) {
    case 0: return all_reduce(self, count, true);
    case 1: return all_reduce(self, count, false);
    case 2: return reduce_to(self, count, last, true);
    case 3: return reduce_to(self, count, middle, false);
    case 4: return broadcast(self, count, middle);
    case 5: return gather(self, count, last, false);
    case 6: return gather(self, count, 0, true);
    case 7: return all_gather(self, count, true, false);
    case 8: return all_gather(self, count, false, true);
    case 9: return all_gather(self, count, false, false);
    case 10: return scatter(self, count, last, false);
    case 11: return scatter(self, count, 0, true);
    case 12: return reduce_scatter(self, count, false);
    case 13: return reduce_scatter(self, count, true);
    case 14: return all_to_all(self, count, true);
    case 15: return all_to_all(self, count, false);
    default: return self.run(make(CollectiveKind::kBarrier, 0));
  }
}

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
          SCOPED_TRACE(str("rank ", self.rank, " of ", self.size, ", variant ", variant, ", count ", count));
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
        SCOPED_TRACE(str("rank ", self.rank, ", step ", i, ", variant ", variant, ", count ", count));
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
    EXPECT_EQ(data, values(self.rank, 0, 70000));
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
