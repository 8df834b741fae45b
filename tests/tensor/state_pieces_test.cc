#include <tandem/tensor/state_pieces.h>

#include <numeric>
#include <random>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/state_reader.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::State;
using td::StateReader;
using td::Tensor;

namespace {

/// float32 begin, begin + 1, ..., end - 1 [end - begin]
Tensor numbers(int64_t begin, int64_t end) {
  const Tensor result = td::empty({end - begin});
  std::iota(result.data<float>(), result.data<float>() + (end - begin), static_cast<float>(begin));
  return result;
}

/// float32 0, 1, ... of a shape
Tensor numbers(const td::Shape& shape) {
  const Tensor result = td::empty(shape);
  std::iota(result.data<float>(), result.data<float>() + result.numel(), 0.0F);
  return result;
}

std::vector<float> concatenated(const std::vector<Tensor>& tensors) {
  std::vector<float> result;
  for (const Tensor& tensor : tensors) {
    const auto values = tensor.to_vector<float>();
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

/// `parts` ranges that divide [0, numel), of random size; some are empty.
std::vector<int64_t> random_cuts(std::mt19937& random, int64_t parts, int64_t numel) {
  std::vector<int64_t> cuts = {0, numel};
  while (static_cast<int64_t>(cuts.size()) <= parts)
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, numel)(random));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

TEST(StatePieces, AnyNumberOfRanksReadsPiecesOfAnyNumberOfRanks) {
  std::mt19937 random(7);
  const std::vector<td::Shape> shapes = {{}, {0, 3}, {1}, {2}, {3}, {5, 1}, {7}, {4, 6}, {10, 10}, {1000}};
  for (const int64_t saved : {1, 2, 3, 4, 8}) {
    std::vector<State> ranks(static_cast<size_t>(saved));
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto cuts = random_cuts(random, saved, num_elements(shapes[i]));
      for (size_t r = 0; r < ranks.size(); ++r) {
        ranks[r].set(td::str("state.", i, ".step"), static_cast<int64_t>(r));
        ranks[r].set(td::str("state.", i, ".m"), make_pieces(shapes[i], cuts[r], numbers(cuts[r], cuts[r + 1])));
        ranks[r].set(td::str("state.", i, ".whole"), numbers(shapes[i]));
      }
    }
    for (const State& rank : ranks) EXPECT_TRUE(without_pieces(rank).get<State>("state.6.m").entries().size() == 1);
    const State merged = merge_pieces(ranks[0], ranks);
    EXPECT_EQ(merged.get<State>("state.4").entries()[1].first, "m");  // the order stays
    for (const int64_t loaded : {1, 2, 3, 4, 8}) {
      StateReader reader(merged);
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto cuts = random_cuts(random, loaded, num_elements(shapes[i]));
        EXPECT_EQ(*reader.read<int64_t>(td::str("state.", i, ".step")), 0);
        for (size_t r = 0; r < static_cast<size_t>(loaded); ++r) {
          for (const char* name : {".m", ".whole"}) {
            const auto elements =
                reader.read_elements(td::str("state.", i, name), shapes[i], td::kFloat32, cuts[r], cuts[r + 1]);
            EXPECT_EQ(concatenated(elements), numbers(cuts[r], cuts[r + 1]).to_vector<float>());
          }
        }
        const Tensor whole = td::empty(shapes[i], {td::kFloat64});
        copy_elements(reader.read_elements(td::str("state.", i, ".m"), shapes[i], td::kFloat32, 0, whole.numel()),
                      whole);
        EXPECT_EQ(whole.to_vector<double>(), numbers(0, whole.numel()).to_vector<double>());
      }
      reader.finish("all entries were read");
    }
  }
}

TEST(StatePieces, ElementsAreViewsOfTheState) {
  State state;
  const Tensor own = numbers(2, 5);
  state.set("m", td::make_pieces({6}, 2, own));
  StateReader reader(state);
  const auto elements = reader.read_elements("m", {6}, td::kFloat32, 3, 5);
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_EQ(elements[0].data<float>(), own.data<float>() + 1);
  const Tensor strided = td::make_view(numbers(0, 6).storage(), td::kFloat32, {3, 2}, {1, 3}, 0);
  State whole;
  whole.set("m", strided);
  EXPECT_EQ(concatenated(StateReader(whole).read_elements("m", {3, 2}, td::kFloat32, 1, 4)),
            (std::vector<float>{3, 1, 4}));
}

TEST(StatePieces, PiecesAndOtherValuesAreSeparated) {
  State state;
  state.set("step", int64_t{3});
  state.set("a.w", td::make_pieces({2, 2}, 1, numbers(1, 3)));
  state.set("a.b", numbers(0, 2));
  state.set("c.w", td::make_pieces({2, 2}, 0, Tensor()));
  const auto text = [](const State& part) {
    std::string result;
    for (const auto& [path, tensor] : part.tensors()) result += path + " ";
    return result;
  };
  EXPECT_FALSE(is_pieces(state.get<State>("a")));
  EXPECT_TRUE(is_pieces(state.get<State>("c.w")));
  EXPECT_EQ(text(td::pieces_of(state)), "a.w.[1:3] ");
  EXPECT_EQ(td::pieces_of(state).get<std::string>("c.w.full_shape"), "[2, 2]");
  EXPECT_EQ(text(td::without_pieces(state)), "a.b ");
  EXPECT_EQ(td::without_pieces(state).get<int64_t>("step"), 3);
  EXPECT_TRUE(td::pieces_of(td::State()).empty());
  EXPECT_EQ(text(state), "a.w.[1:3] a.b ");  // unchanged
  EXPECT_ERROR(td::ShapeError, td::make_pieces({2, 2}, 3, numbers(0, 2)),
               "make_pieces: elements of shape [2] from element 3 on are not a range of a tensor of shape [2, 2]");
  EXPECT_ERROR(td::ShapeError, td::make_pieces({2, 2}, 0, td::zeros({2, 2})),
               "make_pieces: elements of shape [2, 2] from element 0 on are not a range of a tensor of shape [2, 2]");
}

TEST(StatePieces, RanksThatDoNotFitAreNotMerged) {
  const auto error = [](const std::function<void(std::vector<State>&)>& change) {
    std::vector<State> ranks(3);
    for (size_t r = 0; r < 3; ++r) {
      const auto begin = static_cast<int64_t>(2 * r);
      ranks[r].set("s.m", td::make_pieces({3, 2}, begin, numbers(begin, begin + 2)));
    }
    change(ranks);
    return td::testing::error_text<td::StateError>([&] { merge_pieces(ranks[0], ranks); });
  };
  EXPECT_EQ(error([](auto& ranks) { ranks[1] = State(); }), "merge_pieces: 's.m': rank 1 does not have this tensor");
  EXPECT_EQ(error([](auto& ranks) { ranks[2].set("s.n", td::make_pieces({1}, 0, {})); }),
            "merge_pieces: 's.n': rank 2 has pieces of this tensor, the merged state does not");
  EXPECT_EQ(error([](auto& ranks) {
              ranks[1].set("s.m", td::make_pieces({2, 3}, 2, numbers(2, 4)));
            }),
            "merge_pieces: 's.m': shape [2, 3] on rank 1, expected [3, 2]");
  EXPECT_EQ(error([](auto& ranks) {
              ranks[2].set("s.m", td::make_pieces({3, 2}, 3, numbers(3, 6)));
            }),
            "merge_pieces: 's.m': pieces [2:4] of rank 1 and [3:6] of rank 2 overlap");
  EXPECT_EQ(error([](auto& ranks) {
              ranks[1].set("s.m", td::make_pieces({3, 2}, 0, {}));
            }),
            "merge_pieces: 's.m': elements [2:4] are missing");
  EXPECT_EQ(error([](auto& ranks) { ranks[2].set("s.m.[6:8]", numbers(6, 8)); }),
            "merge_pieces: 's.m': [6:8] of rank 2 exceeds the shape [3, 2]");
  for (const char* name : {"[4:7]", "[5:5]", "[-1:1]", "[4:6", "4:6]", "[4:6]x", "more"}) {
    EXPECT_EQ(error([&](auto& ranks) { ranks[2].set(std::string("s.m.") + name, numbers(0, 2)); }),
              td::str("merge_pieces: 's.m.", name, "': not a piece, on rank 2"));
  }
  for (const char* shape : {"", "[3,2]", "[3, 2", "[-3, 2]", "[9223372036854775808]", "[6", "3, 2"}) {
    EXPECT_EQ(error([&](auto& ranks) {
                for (State& rank : ranks) rank.set("s.m.full_shape", std::string(shape));
              }),
              td::str("merge_pieces: 's.m': '", shape, "' is not a shape"));
  }
}

TEST(StatePieces, UnreadableElementsAreMismatches) {
  State state;
  const auto add = [&](const std::string& path, int64_t begin, int64_t end) {
    state.set(td::str(path, ".[", begin, ":", end, "]"), numbers(begin, end));
  };
  for (const char* name : {"dtype", "gap", "hole", "outside", "overlap", "shape", "unknown"})
    state.set(name, td::make_pieces({5, 2}, 2, numbers(2, 4)));
  add("hole", 6, 10);
  add("overlap", 8, 10);
  add("overlap", 3, 5);
  add("unknown", 0, 2);
  state.set("unknown.[4:9]", numbers(4, 10));
  state.set("kind.full_shape", int64_t{3});
  StateReader reader(state);
  const auto read = [&](const char* path, int64_t begin, int64_t end, td::DType dtype = td::kFloat32) {
    return concatenated(reader.read_elements(path, {5, 2}, dtype, begin, end));
  };
  EXPECT_EQ(read("outside", 4, 4), std::vector<float>());
  EXPECT_EQ(read("outside", 2, 4), (std::vector<float>{2, 3}));
  EXPECT_TRUE(read("dtype", 2, 4, td::kFloat64).empty());
  EXPECT_TRUE(read("gap", 0, 4).empty());
  EXPECT_TRUE(read("gap", 3, 10).empty());
  EXPECT_TRUE(read("hole", 3, 8).empty());
  EXPECT_TRUE(read("overlap", 8, 10).empty());
  EXPECT_EQ(read("unknown", 0, 4), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_TRUE(read("kind", 0, 10).empty());
  EXPECT_TRUE(read("gone", 0, 10).empty());
  EXPECT_TRUE(reader.read_elements("shape", {2, 5}, td::kFloat32, 2, 4).empty());
  EXPECT_ERROR(td::StateError, reader.finish("Thing: the state does not fit"),
               "Thing: the state does not fit"
               "\n  different   dtype.[2:4]: float64 expected, float32 in the state"
               "\n  different   gap: elements [0:2] are missing"
               "\n  different   gap: elements [4:10] are missing"
               "\n  different   hole: elements [4:6] are missing"
               "\n  different   overlap: pieces [2:4] and [3:5] overlap"
               "\n  different   kind.full_shape: a string expected, an integer in the state"
               "\n  missing     gone"
               "\n  different   shape: [2, 5] expected, pieces of [5, 2] in the state"
               "\n  unexpected  unknown.[4:9]");
}

}  // namespace
