#include <tandem/tensor/state.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::error_text;

TEST(State, HoldsEveryKindOfValue) {
  State state;
  EXPECT_TRUE(state.empty());
  state.set("weight", ones({3}));
  state.set("step", int64_t{31});
  state.set("lr", 0.05);
  state.set("nesterov", true);
  state.set("name", std::string("sgd"));
  EXPECT_EQ(state.get<Tensor>("weight").numel(), 3);
  EXPECT_EQ(state.get<int64_t>("step"), 31);
  EXPECT_EQ(state.get<double>("lr"), 0.05);
  EXPECT_TRUE(state.get<bool>("nesterov"));
  EXPECT_EQ(state.get<std::string>("name"), "sgd");
  EXPECT_FALSE(state.empty());
}

TEST(State, PathsAddressNestedStates) {
  State state;
  state.set("encoder.fc1.bias", int64_t{7});
  state.set("encoder.fc2.bias", int64_t{8});
  EXPECT_EQ(state.get<int64_t>("encoder.fc1.bias"), 7);
  EXPECT_EQ(state.get<State>("encoder").get<int64_t>("fc2.bias"), 8);
  State inner;
  inner.set("x", 1.5);
  state.set("encoder.fc3", inner);
  EXPECT_EQ(state.get<double>("encoder.fc3.x"), 1.5);
  EXPECT_EQ(state.entries().size(), 1u);
  EXPECT_EQ(state.get<State>("encoder").entries().size(), 3u);
}

TEST(State, InsertionOrderIsKept) {
  State state;
  for (const char* name : {"b", "a", "c"}) state.set(name, int64_t{1});
  state.set("a", int64_t{2});  // replaced, in the same position
  std::string order;
  for (const auto& [name, value] : state.entries()) order += name;
  EXPECT_EQ(order, "bac");
  EXPECT_EQ(state.get<int64_t>("a"), 2);
}

TEST(State, EntriesSetInAnyOrderAreFoundAndReplaced) {
  constexpr int64_t kCount = 1000, kStep = 387;  // without a common factor: visits every number once
  State state;
  for (const int64_t factor : {1, 2}) {
    for (int64_t i = 0; i < kCount; ++i) state.set("n" + std::to_string(i * kStep % kCount), factor * i);
    ASSERT_EQ(state.entries().size(), static_cast<size_t>(kCount));
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(state.get<int64_t>("n" + std::to_string(i * kStep % kCount)), factor * i);
      EXPECT_EQ(state.entries()[static_cast<size_t>(i)].first, "n" + std::to_string(i * kStep % kCount));
    }
  }
  EXPECT_EQ(state.find("n1000"), nullptr);
}

TEST(State, TensorsAreListedWithPaths) {
  State state;
  state.set("fc2.weight", ones({3}));
  state.set("step", int64_t{1});
  state.set("fc1.weight", ones({7}));
  state.set("fc2.bias", ones({1}));
  const auto tensors = state.tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].first, "fc2.weight");
  EXPECT_EQ(tensors[1].first, "fc2.bias");
  EXPECT_EQ(tensors[2].first, "fc1.weight");
  EXPECT_EQ(tensors[2].second.numel(), 7);
}

TEST(State, FindOfUnknownPathReturnsNull) {
  State state;
  state.set("a.b", int64_t{1});
  for (const char* path : {"b", "a.c", "a.b.c", "", "a.", ".a"}) EXPECT_EQ(state.find(path), nullptr) << path;
  EXPECT_NE(state.find("a"), nullptr);
}

TEST(State, InvalidAccessesAreNamedInErrors) {
  State state;
  state.set("a.b", int64_t{1});
  EXPECT_ERROR(StateError, state.get<int64_t>("a.c"), "State: 'a.c' is missing");
  EXPECT_ERROR(StateError, state.get<double>("a.b"), "State: 'a.b' has a different type than requested");
  EXPECT_ERROR(StateError, state.get<State>("a.b"), "State: 'a.b' is not a nested state");
  EXPECT_ERROR(StateError, state.set("a.b.c", int64_t{1}),
               "State: 'b' is a value, not a nested state; 'b.c' cannot be set");
  EXPECT_ERROR(StateError, state.set("x", std::shared_ptr<State>()), "State: the state for 'x' is null");
  for (const char* path : {"", ".a", "a.", "x..y", "."}) {
    EXPECT_NE(error_text<StateError>([&] { state.set(path, int64_t{1}); }).find("is not a valid path: a name is empty"),
              std::string::npos)
        << path;
  }
  EXPECT_EQ(state.entries().size(), 1u);  // a failed set adds nothing
  EXPECT_EQ(state.get<State>("a").entries().size(), 1u);
}

}}  // namespace tandem
