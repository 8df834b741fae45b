// Tensors with equal element counts but different shapes: every collective and message rejects them on every rank and
// shows both shapes. With CPU tensors, and with one GPU per rank.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <tandem/distributed/backends/collective.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/full.h>
#include <tandem/tests/support/rank_devices.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Tensors = std::vector<Tensor>;

const bool kOnGpus = !testing::test_device().is_cpu();

/// A tensor of this rank. Strides differ between ranks.
Tensor make(const ProcessGroup& g, const Shape& shape) {
  const Device device = testing::rank_devices(g.size())[static_cast<size_t>(g.rank())];
  if (g.rank() % 2 == 0) return ones(shape, {kFloat32, device});
  Shape wider = shape;
  wider.push_back(2);
  Shape strides = row_major_strides(wider);
  strides.pop_back();
  return make_view(ones(wider, {kFloat32, device}).storage(), kFloat32, shape, strides, 0);
}

Shape with_rows(int64_t rows, Shape shape) {
  shape.insert(0, rows);
  return shape;
}

/// [size(), ...] of [...].
Tensor stacked(const ProcessGroup& g, const Shape& shape) { return make(g, with_rows(g.size(), shape)); }

Tensors list(const ProcessGroup& g, const Shape& shape) {
  Tensors tensors;
  for (int rank = 0; rank < g.size(); ++rank) tensors.push_back(make(g, shape));
  return tensors;
}

/// A tensor or list that only root passes.
template <class T>
T on_root(const ProcessGroup& g, const T& tensors) {
  return g.rank() == 0 ? tensors : T();
}

/// An operation on tensors of `shape` on this rank.
struct Call {
  const char* name;
  void (*run)(ProcessGroup& g, const Shape& shape, bool async);
  bool needs_rows = false;  ///< at least one dimension
  bool has_rows = false;    ///< errors show rank r's shape with a leading dimension of r + 1
};

void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

using G = ProcessGroup;

const Call kCalls[] = {
    {"all_reduce",
     [](G& g, const Shape& s, bool async) {
       const Tensor x = make(g, s);
       async ? g.all_reduce_async(x).wait() : g.all_reduce(x);
     }},
    {"all_reduce_into",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = make(g, s), x = make(g, s);
       async ? g.all_reduce_async(out, x).wait() : g.all_reduce(out, x);
     }},
    {"reduce",
     [](G& g, const Shape& s, bool async) {
       const Tensor x = make(g, s);
       async ? g.reduce_async(x, 0).wait() : g.reduce(x, 0);
     }},
    {"broadcast",
     [](G& g, const Shape& s, bool async) {
       const Tensor x = make(g, s);
       async ? g.broadcast_async(x, 0).wait() : g.broadcast(x, 0);
     }},
    {"gather",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = on_root(g, stacked(g, s)), x = make(g, s);
       async ? g.gather_async(out, x, 0).wait() : g.gather(out, x, 0);
     }},
    {"gather_list",
     [](G& g, const Shape& s, bool async) {
       const Tensors out = on_root(g, list(g, s));
       const Tensor x = make(g, s);
       async ? g.gather_async(out, x, 0).wait() : g.gather(out, x, 0);
     }},
    {"all_gather",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = stacked(g, s), x = make(g, s);
       async ? g.all_gather_async(out, x).wait() : g.all_gather(out, x);
     }},
    {"all_gather_list",
     [](G& g, const Shape& s, bool async) {
       const Tensors out = list(g, s);
       const Tensor x = make(g, s);
       async ? g.all_gather_async(out, x).wait() : g.all_gather(out, x);
     }},
    {"all_gather_unequal_list",
     [](G& g, const Shape& s, bool async) {
       Tensors out;
       for (int rank = 0; rank < g.size(); ++rank) out.push_back(make(g, with_rows(rank + 1, s)));
       const Tensor x = make(g, with_rows(g.rank() + 1, s));
       async ? g.all_gather_async(out, x).wait() : g.all_gather(out, x);
     },
     false, true},
    {"scatter",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = make(g, s), parts = on_root(g, stacked(g, s));
       async ? g.scatter_async(out, parts, 0).wait() : g.scatter(out, parts, 0);
     }},
    {"scatter_list",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = make(g, s);
       const Tensors parts = on_root(g, list(g, s));
       async ? g.scatter_async(out, parts, 0).wait() : g.scatter(out, parts, 0);
     }},
    {"reduce_scatter",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = make(g, s), parts = stacked(g, s);
       async ? g.reduce_scatter_async(out, parts).wait() : g.reduce_scatter(out, parts);
     }},
    {"reduce_scatter_list",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = make(g, s);
       const Tensors parts = list(g, s);
       async ? g.reduce_scatter_async(out, parts).wait() : g.reduce_scatter(out, parts);
     }},
    {"all_to_all",
     [](G& g, const Shape& s, bool async) {
       const Tensor out = stacked(g, s), x = stacked(g, s);
       async ? g.all_to_all_async(out, x).wait() : g.all_to_all(out, x);
     }},
    {"all_to_all_list",
     [](G& g, const Shape& s, bool async) {
       const Tensors out = list(g, s), x = list(g, s);
       async ? g.all_to_all_async(out, x).wait() : g.all_to_all(out, x);
     }},
    {"all_to_all_splits",
     [](G& g, const Shape& s, bool async) {
       Shape all = s;
       all[0] *= g.size();
       const Tensor out = make(g, all), x = make(g, all);
       const std::vector<int64_t> splits(static_cast<size_t>(g.size()), s[0]);
       async ? g.all_to_all_async(out, x, splits, splits).wait() : g.all_to_all(out, x, splits, splits);
     },
     true},
    {"all_reduce_coalesced",
     [](G& g, const Shape& s, bool async) {
       const Tensors xs = {make(g, {5}), make(g, s)};
       async ? g.all_reduce_coalesced_async(xs).wait() : g.all_reduce_coalesced(xs);
     }},
    {"broadcast_coalesced",
     [](G& g, const Shape& s, bool async) {
       const Tensors xs = {make(g, {5}), make(g, s)};
       async ? g.broadcast_coalesced_async(xs, 0).wait() : g.broadcast_coalesced(xs, 0);
     }},
    {"all_gather_coalesced",
     [](G& g, const Shape& s, bool async) {
       const Tensors outs = {stacked(g, {5}), stacked(g, s)}, xs = {make(g, {5}), make(g, s)};
       async ? g.all_gather_coalesced_async(outs, xs).wait() : g.all_gather_coalesced(outs, xs);
     }},
    {"reduce_scatter_coalesced",
     [](G& g, const Shape& s, bool async) {
       const Tensors outs = {make(g, {5}), make(g, s)}, xs = {stacked(g, {5}), stacked(g, s)};
       async ? g.reduce_scatter_coalesced_async(outs, xs).wait() : g.reduce_scatter_coalesced(outs, xs);
     }},
    {"messages",  // around the ring; ranks whose neighbours match are notified in the barrier
     [](G& g, const Shape& s, bool async) {
       const Tensor sent = make(g, s), received = make(g, s);
       const int to = (g.rank() + 1) % g.size(), from = (g.rank() + g.size() - 1) % g.size();
       if (async) {
         for (const Work& work :
              g.batch_isend_irecv({{P2POp::Kind::kSend, sent, to}, {P2POp::Kind::kRecv, received, from}}))
           work.wait();
       } else if (g.rank() == 0) {
         g.send(sent, to);
         g.recv(received, from);
       } else {
         g.recv(received, from);
         g.send(sent, to);
       }
       g.barrier();
     }},
};

/// The transports between ranks.
struct Transport {
  std::string backend;
  std::string hosts;
};

std::vector<Transport> transports() {
  if (kOnGpus) return {{"auto", ""}};
  if (!testing::runs_all_combinations()) return {{"", ""}, {"gloo", ""}, {"auto", "aabb"}};
  return {{"", ""}, {"gloo", ""}, {"auto", "abab"}, {"auto", "aabb"}};
}

ThreadRanks ranks_of(const Transport& transport, int world_size) {
  return {.world_size = world_size, .backend = transport.backend, .hosts = transport.hosts};
}

/// Runs the call with shapes[rank] on each rank, and expects an error with both shapes on every rank.
void expect_both_shapes(const ThreadRanks& ranks, const Call& call, const std::vector<Shape>& shapes, bool async) {
  const std::vector<Thrown> thrown =
      run_all(ranks, [&](ProcessGroup& g) { call.run(g, shapes[static_cast<size_t>(g.rank())], async); });
  // With coalesced tensors the shape is not the first one.
  const auto is_shown = [&](const std::string& text, const Shape& shape) {
    for (int rank = 0; rank < ranks.world_size; ++rank) {
      const Shape shown = call.has_rows ? with_rows(rank + 1, shape) : shape;
      if (shapes[static_cast<size_t>(rank)] == shape && text.find(str(" ", shown)) != std::string::npos) return true;
    }
    return false;
  };
  for (size_t rank = 0; rank < thrown.size(); ++rank) {
    SCOPED_TRACE(str(call.name, async ? " async" : "", " over '", ranks.backend, "' on hosts '", ranks.hosts,
                     "', rank ", rank, ": ", thrown[rank].text));
    EXPECT_NE(thrown[rank].text.find("calls do not match across ranks\n  rank "), std::string::npos);
    for (const Shape& shape : shapes) EXPECT_TRUE(is_shown(thrown[rank].text, shape)) << shape;
  }
}

class ShapeMismatch : public ::testing::TestWithParam<Call> {};
INSTANTIATE_TEST_SUITE_P(Each, ShapeMismatch, ::testing::ValuesIn(kCalls),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_P(ShapeMismatch, DifferentShapesOfEqualCountAreRejected) {
  const Call& call = GetParam();
  const std::pair<Shape, Shape> pairs[] = {{{2, 3}, {3, 2}},    {{2, 3}, {6}},    {{2, 3}, {1, 2, 3}},
                                           {{2, 3}, {2, 3, 1}}, {{0, 3}, {3, 0}}, {{1}, {}}};
  for (const Transport& transport : transports()) {
    // Only two pairs between hosts, because creating groups takes longer there, and under ThreadSanitizer, because all
    // pairs take the same paths.
    const bool all_pairs = transport.backend.empty() && !testing::kThreadSanitizer;
    const size_t num_pairs = all_pairs ? std::size(pairs) : 2;
    bool async = false;
    for (const auto& [base, other] : std::span(pairs, num_pairs)) {
      if (call.needs_rows && other.empty()) continue;
      expect_both_shapes(ranks_of(transport, 3), call, {async ? other : base, base, async ? base : other}, async);
      async = !async;
    }
  }
}

TEST_P(ShapeMismatch, EqualShapesWithDifferentStridesAreAccepted) {
  for (const Transport& transport : transports()) {
    ranks_of(transport, 3).run([&](ProcessGroup& g) {
      for (const Shape& shape : {Shape{2, 3}, Shape{0, 3}, Shape{1, 1, 4}, Shape{}}) {
        if (GetParam().needs_rows && shape.empty()) continue;
        for (const bool async : {false, true}) GetParam().run(g, shape, async);
      }
    });
  }
}

/// Another shape with the same number of elements.
Shape reshaped(const Shape& shape, std::mt19937& random) {
  Shape other = shape;
  switch (random() % 3) {
    case 0: std::shuffle(other.begin(), other.end(), random); break;
    case 1: other = {num_elements(shape)}; break;
    default: break;
  }
  if (other == shape) other.insert(random() % (shape.size() + 1), 1);
  return other;
}

class RandomShapes : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Each, RandomShapes, ::testing::Range(0u, 8u));

/// Calls with equal shapes, then one with two shapes.
TEST_P(RandomShapes, FirstMismatchIsShownOnEveryRank) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  const auto some_shape = [&](const Call& call) {
    Shape shape(call.needs_rows + below(4), 0);
    for (int64_t& size : shape) size = static_cast<int64_t>(below(5));
    return shape;
  };
  const std::vector<Transport> all = transports();
  const int programs = testing::runs_all_combinations() ? 12 : 4;
  for (int program = 0; program < programs; ++program) {
    const int world_size = 2 + static_cast<int>(below(3));
    const ThreadRanks ranks = ranks_of(all[below(all.size())], world_size);
    struct Step {
      Call call;
      Shape shape;
      bool async;
    };
    std::vector<Step> steps;
    for (size_t i = 0; i < below(6); ++i) {
      const Call& call = kCalls[below(std::size(kCalls))];
      steps.push_back({call, some_shape(call), below(2) == 0});
    }
    Call last = kCalls[below(std::size(kCalls))];
    const Shape base = some_shape(last), other = reshaped(base, random);
    std::vector<Shape> shapes;
    do {
      shapes.clear();
      for (int rank = 0; rank < world_size; ++rank) shapes.push_back(below(2) == 0 ? base : other);
    } while (std::set<bool>{shapes.front() == base, shapes.back() == base}.size() < 2);
    SCOPED_TRACE(str("seed ", GetParam(), " program ", program));
    const std::vector<Thrown> thrown = run_all(ranks, [&](ProcessGroup& g) {
      for (const Step& step : steps) step.call.run(g, step.shape, step.async);
    });
    for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
    ThreadRanks next = ranks;
    next.name = "next";
    expect_both_shapes(next, last, shapes, below(2) == 0);
  }
}

TEST(ShapeErrors, LongShapesAndListsAreAbbreviated) {
  Shape last(20, 1);
  last.back() = 3;
  const std::string first_sizes = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ..., 20 dimensions]";
  for (const Thrown& t : run_all(ranks_of(transports().front(), 2),
                                 [&](ProcessGroup& g) { g.all_reduce(make(g, g.rank() == 0 ? Shape{3} : last)); })) {
    EXPECT_NE(t.text.find("rank 0  all_reduce sum float32 [3]"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("rank 1  all_reduce sum float32 " + first_sizes), std::string::npos) << t.text;
  }
  for (const Thrown& t : run_all(ranks_of(transports().front(), 2), [&](ProcessGroup& g) {
         Tensors xs = {make(g, {2}), make(g, {3}), make(g, {3})};
         for (int64_t n = 100; n < 200; ++n) xs.push_back(make(g, {n}));
         if (g.rank() == 1) xs.back() = make(g, {199, 1});
         g.all_reduce_coalesced(xs);
       })) {
    EXPECT_NE(t.text.find("all_reduce sum float32 [2], 2 x [3], [100], [101], "), std::string::npos) << t.text;
    EXPECT_NE(t.text.find(str(" more", kOnGpus ? " on a GPU" : "", ", '103 tensors'")), std::string::npos) << t.text;
  }
}

TEST(ShapeHash, SmallShapesDoNotCollide) {
  std::set<uint64_t> hashes;
  size_t count = 0;
  for (size_t dims = 0; dims <= 5; ++dims) {
    Shape shape(dims, 0);
    for (bool more = true; more; ++count) {
      hashes.insert(hash_shape(shape));
      more = false;
      for (size_t i = 0; i < dims && !more; ++i) {
        more = ++shape[i] < 8;
        if (!more) shape[i] = 0;
      }
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

}}}}  // namespace tandem::v0::distributed
