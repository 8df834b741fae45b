#include <tandem/distributed/object_collectives.h>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/io/state_file.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using tandem::testing::error_text;

/// Of a different length on each rank, empty on rank 0, with bytes that are not text.
std::string string_of(int rank) { return std::string(static_cast<size_t>(rank) * 1000, static_cast<char>(255 - rank)); }

State state_of(int rank) {
  State state;
  const Tensor weight = from_vector<double>({0.1 * rank, 1.5}, {2});
  state.set("weight", weight);
  state.set("tied", weight);
  state.set("deep.step", int64_t{rank});
  for (int i = 0; i < rank; ++i) state.set(str("extra ", i), std::string("x"));
  return state;
}

void expect_state_of(int rank, const State& state) {
  EXPECT_EQ(io::state_to_bytes(state), io::state_to_bytes(state_of(rank)));
  EXPECT_TRUE(state.get<Tensor>("weight").is_same(state.get<Tensor>("tied")));
}

TEST(ObjectCollectives, StringsArriveOnTheRanksThatReceive) {
  run_threads(4, [](Context& context) {
    std::string object = string_of(context.rank());
    broadcast_object(object, 3, context.group());
    EXPECT_EQ(object, string_of(3));
    broadcast_object(object = string_of(context.rank()), 0);  // the default group
    EXPECT_EQ(object, "");
    const std::vector<std::string> all = {string_of(0), string_of(1), string_of(2), string_of(3)};
    EXPECT_EQ(all_gather_object(string_of(context.rank())), all);
    EXPECT_EQ(gather_object(string_of(context.rank()), 2), context.rank() == 2 ? all : std::vector<std::string>());
  });
}

TEST(ObjectCollectives, StatesKeepValuesOrderAndTies) {
  run_threads(3, [](Context& context) {
    State object = state_of(context.rank());
    broadcast_object(object, 1, context.group());
    expect_state_of(1, object);
    const std::vector<State> all = all_gather_object(state_of(context.rank()));
    ASSERT_EQ(all.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) expect_state_of(rank, all[static_cast<size_t>(rank)]);
    const std::vector<State> gathered = gather_object(state_of(context.rank()), 2);
    ASSERT_EQ(gathered.size(), context.rank() == 2 ? 3u : 0u);
    for (size_t rank = 0; rank < gathered.size(); ++rank) expect_state_of(static_cast<int>(rank), gathered[rank]);
  });
}

TEST(ObjectCollectives, RootsAreRanksOfTheGroup) {
  run_threads(3, [](Context& context) {
    if (context.rank() == 1) return;
    const auto group = context.new_group({0, 2});
    std::string object = string_of(context.rank());
    broadcast_object(object, 1, group);
    EXPECT_EQ(object, string_of(2));
    EXPECT_EQ(gather_object(string_of(context.rank()), 1, group).size(), context.rank() == 2 ? 2u : 0u);
    EXPECT_EQ(error_text<ValueError>([&] { gather_object("x", 2, group); }), "gather_object: root 2 is not in [0, 2)");
    EXPECT_EQ(error_text<ValueError>([&] { gather_object(State(), -1, group); }),
              "gather_object: root -1 is not in [0, 2)");
  });
}

TEST(ObjectCollectives, TooLargeObjectsAreAnErrorOnAllRanksBeforeTheyAreRead) {
  constexpr size_t kBytes = kMaxObjectBytes + 1;
  void* const unreadable = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(unreadable, MAP_FAILED);
  run_threads(3, [&](Context& context) {
    if (context.rank() == 0) return;
    const auto group = context.new_group({1, 2});
    const std::string_view object =
        context.rank() == 2 ? std::string_view(static_cast<const char*>(unreadable), kBytes) : "small";
    const std::string rest =
        ": the object of rank 2 has 1073741825 bytes, expected at most 1073741824; send its tensors by their own "
        "collectives, or write it to a file";
    EXPECT_EQ(error_text<ValueError>([&] { all_gather_object(object, group); }), "all_gather_object" + rest);
    EXPECT_EQ(error_text<ValueError>([&] { gather_object(object, 0, group); }), "gather_object" + rest);
    EXPECT_EQ(all_gather_object("usable", group), std::vector<std::string>(2, "usable"));
  });
  munmap(unreadable, kBytes);
}

template <class T>
void call(int function, T object) {
  const CollectiveOptions options = {.name = "labels"};
  if (function == 0) broadcast_object(object, 0, {}, options);
  if (function == 1) gather_object(object, 0, {}, options);
  if (function == 2) all_gather_object(object, {}, options);
}

TEST(ObjectCollectives, AStringDoesNotMatchAState) {
  for (int function = 0; function < 3; ++function) {
    const std::string text = error_text<CommError>([&] {
      run_threads(2, [&](Context& context) {
        context.rank() == 0 ? call(function, std::string("x")) : call(function, State());
      });
    });
    const std::string kind = function == 0 ? "broadcast" : "all_gather",
                      shown = kind + (function == 0 ? " from 0" : "");
    EXPECT_EQ(std::regex_replace(text, std::regex("^.rank . of 2. |, [^ ]*_test.cc:[0-9]+"), ""),
              kind + " #1: calls do not match across ranks\n  rank 0  " + shown +
                  " int64 [1], 'string labels'\n  rank 1  " + shown + " int64 [1], 'state labels'");
  }
}

TEST(ObjectCollectives, StatesThatCannotBeWrittenAreRejectedBeforeAnythingIsSent) {
  run_threads(2, [](Context& context) {
    State state;
    state.set("missing", Tensor());
    EXPECT_EQ(error_text<StateError>([&] { all_gather_object(state); }),
              "save_state: the tensor 'missing' is undefined");
    EXPECT_EQ(all_gather_object(str(context.rank())), (std::vector<std::string>{"0", "1"}));
  });
}

}}}}  // namespace tandem::v0::distributed
