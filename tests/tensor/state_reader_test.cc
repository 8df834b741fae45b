#include <tandem/tensor/state_reader.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::State;
using td::StateReader;

namespace {

State full() {
  State state;
  state.set("count", int64_t{3});
  state.set("rate", 0.5);
  state.set("on", true);
  state.set("part.name", std::string("left"));
  state.set("part.weight", td::full({2, 3}, 7));
  return state;
}

TEST(StateReader, ExistingEntriesAreRead) {
  const State state = full();
  StateReader reader(state);
  EXPECT_TRUE(reader.has("count"));
  EXPECT_TRUE(reader.has("part"));
  EXPECT_TRUE(reader.has("part.name"));
  EXPECT_FALSE(reader.has("par"));
  EXPECT_FALSE(reader.has("part.name.x"));
  EXPECT_EQ(*reader.read<int64_t>("count"), 3);
  EXPECT_EQ(*reader.read<double>("rate"), 0.5);
  EXPECT_EQ(*reader.read<bool>("on"), true);
  EXPECT_EQ(*reader.read<std::string>("part.name"), "left");
  EXPECT_EQ(reader.read_tensor("part.weight", td::zeros({2, 3}))->to_vector<float>()[5], 7);
  reader.finish("nobody sees this");
}

TEST(StateReader, AllMismatchesAreListedInError) {
  State state = full();
  state.set("empty", td::Tensor());
  state.set("part.bias", td::zeros({2}));
  state.set("part.extra.x", 1.0);
  StateReader reader(state);
  EXPECT_EQ(reader.read<int64_t>("missing"), nullptr);
  EXPECT_EQ(reader.read<double>("count"), nullptr);
  EXPECT_EQ(reader.read<bool>("rate"), nullptr);
  EXPECT_EQ(reader.read<std::string>("on"), nullptr);
  EXPECT_EQ(reader.read<int64_t>("part.name"), nullptr);
  EXPECT_EQ(reader.read<int64_t>("part"), nullptr);
  EXPECT_EQ(reader.read<int64_t>("part.weight"), nullptr);
  EXPECT_EQ(reader.read_tensor("part.bias", td::zeros({2}, {td::kInt64})), nullptr);
  EXPECT_EQ(reader.read_tensor("part.weight", td::zeros({3, 2})), nullptr);
  EXPECT_EQ(reader.read_tensor("empty", td::zeros({})), nullptr);
  EXPECT_EQ(reader.read_tensor("rate", td::zeros({})), nullptr);
  EXPECT_EQ(reader.read_tensor("gone", td::zeros({})), nullptr);
  reader.refuse("count", "is not prime");
  EXPECT_ERROR(td::StateError, reader.finish("Thing: the state does not fit"),
               "Thing: the state does not fit"
               "\n  missing     missing"
               "\n  different   count: a number expected, an integer in the state"
               "\n  different   rate: a bool expected, a number in the state"
               "\n  different   on: a string expected, a bool in the state"
               "\n  different   part.name: an integer expected, a string in the state"
               "\n  missing     part"
               "\n  different   part.weight: an integer expected, float32 [2, 3] in the state"
               "\n  different   part.bias: int64 [2] expected, float32 [2] in the state"
               "\n  different   part.weight: float32 [3, 2] expected, float32 [2, 3] in the state"
               "\n  different   empty: float32 [] expected, an undefined tensor in the state"
               "\n  different   rate: float32 [] expected, a number in the state"
               "\n  missing     gone"
               "\n  different   count: is not prime"
               "\n  unexpected  part.extra.x");
}

TEST(StateReader, RenamedTensorsAreRead) {
  StateReader reader({{"a.x", td::ones({2})}, {"b.x", td::zeros({3})}});
  reader.rename([](const std::string& path) { return path.substr(2) + (path[0] == 'a' ? "1" : "2"); });
  EXPECT_NE(reader.read_tensor("x1", td::ones({2})), nullptr);
  EXPECT_EQ(reader.find("b.x"), nullptr);
  EXPECT_EQ(std::get<td::Tensor>(*reader.find("x2")).shape(), td::Shape({3}));
  EXPECT_EQ(reader.unread(), std::vector<std::string>{"x2"});
}

TEST(StateReader, RepeatedPathsAreMismatches) {
  StateReader reader({{"a", td::ones({1})}, {"a", td::ones({1})}, {"b", td::ones({1})}});
  reader.rename([](const std::string& path) { return path + path; });
  reader.rename([](const std::string&) { return "c"; });
  EXPECT_ERROR(td::StateError, reader.finish("Thing: the state does not fit", false),
               "Thing: the state does not fit"
               "\n  duplicate   a"
               "\n  duplicate   c");
}

TEST(StateReader, OnlyFloatingDTypesAreInterchangeable) {
  StateReader reader({{"half", td::ones({2}, {td::kFloat16})}, {"integer", td::ones({2}, {td::kInt64})}});
  const td::Tensor floats = td::ones({2});
  EXPECT_NE(reader.read_tensor("half", floats, true), nullptr);
  EXPECT_EQ(reader.read_tensor("half", td::ones({3}), true), nullptr);
  EXPECT_EQ(reader.read_tensor("half", floats), nullptr);
  EXPECT_EQ(reader.read_tensor("half", td::ones({2}, {td::kInt64}), true), nullptr);
  EXPECT_EQ(reader.read_tensor("integer", floats, true), nullptr);
  EXPECT_EQ(reader.read_tensor("integer", td::ones({2}, {td::kInt32}), true), nullptr);
}

}  // namespace
