// Every collective with values in closed form, through a backend alone.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/collective.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

using Values = std::vector<int32_t>;

/// Element i of what `from` sends, to `to` where everybody gets something else.
inline int32_t value(int from, int to, int64_t i) {
  return static_cast<int32_t>(from * 1000003 + to * 5003 + i * 7 + 1);
}

inline Values values(int from, int to, int64_t count) {
  Values out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = value(from, to, i);
  return out;
}

inline Values sums(int size, int to, int64_t count) {
  Values out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (int from = 0; from < size; ++from) out[static_cast<size_t>(i)] += value(from, to, i);
  }
  return out;
}

inline Part part_of(Values& v) {
  const auto count = static_cast<int64_t>(v.size());
  return {v.empty() ? nullptr : reinterpret_cast<std::byte*>(v.data()), count, {count}};
}

inline std::byte* bytes_of(Values& v) { return part_of(v).data; }

inline Collective make(CollectiveKind kind, int64_t count, int root = -1) {
  Collective c;
  c.kind = kind;
  c.dtype = kInt32;
  c.num_elements = count;
  c.root = root;
  c.shape = {count};
  return c;
}

inline void expect_same(const Values& got, const Values& want) {
  TANDEM_CHECK(StateError, got.size() == want.size(), "got ", got.size(), " values, want ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    TANDEM_CHECK(StateError, got[i] == want[i], "element ", i, " of ", got.size(), ": got ", got[i], ", want ",
                 want[i]);
  }
}

inline constexpr int32_t kUntouched = -77;
inline Values untouched(int64_t count) { return Values(static_cast<size_t>(count), kUntouched); }

/// Sizes of uneven parts: some are empty, one is much longer than the others.
inline int64_t uneven(int from, int to, int64_t count) {
  if ((from + 2 * to) % 3 == 1) return 0;
  return from == 1 && to == 0 ? 5 * count : count + from - to + 7;
}

inline void all_reduce(ShmRank& self, int64_t count, bool in_place) {
  Values in = values(self.rank, 0, count);
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kAllReduce, count);
  c.input = bytes_of(in);
  c.output = in_place ? bytes_of(in) : bytes_of(out);
  self.run(c);
  expect_same(in_place ? in : out, sums(self.size, 0, count));
  if (!in_place) {
    expect_same(in, values(self.rank, 0, count));
  }
}

inline void reduce_to(ShmRank& self, int64_t count, int root, bool in_place) {
  Values in = values(self.rank, 0, count);
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kReduce, count, root);
  c.input = bytes_of(in);
  if (self.rank == root) c.output = in_place ? bytes_of(in) : bytes_of(out);
  self.run(c);
  if (self.rank == root) {
    expect_same(in_place ? in : out, sums(self.size, 0, count));
  }
  if (self.rank != root || !in_place) {
    expect_same(in, values(self.rank, 0, count));
  }
}

inline void broadcast(ShmRank& self, int64_t count, int root) {
  Values data = self.rank == root ? values(root, 0, count) : untouched(count);
  Collective c = make(CollectiveKind::kBroadcast, count, root);
  c.input = c.output = bytes_of(data);
  self.run(c);
  expect_same(data, values(root, 0, count));
}

inline void gather(ShmRank& self, int64_t count, int root, bool in_place) {
  Values in = values(self.rank, 0, count);
  std::vector<Values> out(static_cast<size_t>(self.size), untouched(count));
  Collective c = make(CollectiveKind::kGather, count, root);
  c.input = bytes_of(in);
  if (self.rank == root) {
    for (Values& v : out) c.outputs.push_back(part_of(v));
    if (in_place) c.outputs[static_cast<size_t>(root)].data = bytes_of(in);
  }
  self.run(c);
  expect_same(in, values(self.rank, 0, count));
  for (int from = 0; self.rank == root && from < self.size; ++from) {
    if (from != root || !in_place) {
      expect_same(out[static_cast<size_t>(from)], values(from, 0, count));
    }
  }
}

inline void all_gather(ShmRank& self, int64_t count, bool even, bool in_place) {
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
  expect_same(in, values(self.rank, 0, size_of_part(self.rank)));
  for (int from = 0; from < self.size; ++from) {
    if (from != self.rank || !in_place) {
      expect_same(out[static_cast<size_t>(from)], values(from, 0, size_of_part(from)));
    }
  }
}

inline void scatter(ShmRank& self, int64_t count, int root, bool in_place) {
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
    expect_same(out, values(root, self.rank, count));
  }
  for (int to = 0; self.rank == root && to < self.size; ++to) {
    expect_same(in[static_cast<size_t>(to)], values(root, to, count));
  }
}

inline void reduce_scatter(ShmRank& self, int64_t count, bool in_place) {
  std::vector<Values> in;
  Values out = untouched(count);
  Collective c = make(CollectiveKind::kReduceScatter, count);
  for (int to = 0; to < self.size; ++to) in.push_back(values(self.rank, to, count));
  for (Values& v : in) c.inputs.push_back(part_of(v));
  Values& result = in_place ? in[static_cast<size_t>(self.rank)] : out;
  c.output = bytes_of(result);
  self.run(c);
  expect_same(result, sums(self.size, self.rank, count));
  for (int to = 0; to < self.size; ++to) {
    if (to != self.rank || !in_place) {
      expect_same(in[static_cast<size_t>(to)], values(self.rank, to, count));
    }
  }
}

inline void all_to_all(ShmRank& self, int64_t count, bool even) {
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
    expect_same(in[static_cast<size_t>(rank)], values(self.rank, rank, size_of_part(self.rank, rank)));
    expect_same(out[static_cast<size_t>(rank)], values(rank, self.rank, size_of_part(rank, self.rank)));
  }
}

inline constexpr int kVariants = 17;

inline void run_values(ShmRank& self, int variant, int64_t count) {
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

/// One collective with values of its own; throws where a rank gets others than it should.
inline void run_variant(ShmRank& self, int variant, int64_t count) {
  try {
    run_values(self, variant, count);
  } catch (const StateError& e) {
    throw StateError(
        str("rank ", self.rank, " of ", self.size, ", variant ", variant, ", count ", count, ": ", e.what()));
  }
}

}}}  // namespace tandem::v0::distributed
