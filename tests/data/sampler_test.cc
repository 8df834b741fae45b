#include <tandem/data/sampler.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::DistributedSampler;
using td::data::RandomSampler;
using td::data::SequentialSampler;
using Mode = td::data::DistributedSamplerOptions::Mode;

namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 7};
constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 31, 32, 33, 100};

std::vector<int64_t> ascending(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool is_permutation_of(std::vector<int64_t> order, int64_t size) {
  std::sort(order.begin(), order.end());
  return order == ascending(size);
}

TEST(SequentialSampler, VisitsEachItemInOrderEachEpoch) {
  for (const int64_t size : kSizes) {
    SequentialSampler sampler(size);
    EXPECT_EQ(sampler.size(), size);
    EXPECT_EQ(sampler.begin_epoch(), ascending(size));
    EXPECT_EQ(sampler.begin_epoch(), ascending(size));
  }
}

TEST(RandomSampler, EpochsAreDistinctPermutations) {
  for (const int64_t size : kSizes) {
    RandomSampler sampler(size, 3);
    const auto first = sampler.begin_epoch();
    const auto second = sampler.begin_epoch();
    EXPECT_TRUE(is_permutation_of(first, size));
    EXPECT_TRUE(is_permutation_of(second, size));
    if (size >= 7) {
      EXPECT_NE(first, second);
      EXPECT_NE(first, ascending(size));
    }
  }
}

TEST(RandomSampler, OrderDependsOnlyOnSeedAndEpoch) {
  RandomSampler a(33, 5);
  RandomSampler b(33, 5);
  RandomSampler c(33, 6);
  a.begin_epoch();
  b.set_epoch(1);
  const auto order = a.begin_epoch();
  EXPECT_EQ(order, b.begin_epoch());
  c.set_epoch(1);
  EXPECT_NE(order, c.begin_epoch());
  EXPECT_EQ(a.epoch(), 1);
}

TEST(RandomSampler, EveryPermutationOfThreeIsEquallyLikely) {
  RandomSampler sampler(3, 1);
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kDraws = 6000;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.begin_epoch()];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, kDraws / 6, 5 * 29);  // 5 standard deviations
}

TEST(DistributedSampler, TrainingSharesAreEqualAndCoverAllItems) {
  for (const int world : kWorlds) {
    for (const int64_t size : kSizes) {
      for (const bool shuffle : {false, true}) {
        std::multiset<int64_t> seen;
        const int64_t share = (size + world - 1) / world;
        for (int rank = 0; rank < world; ++rank) {
          DistributedSampler sampler(size, rank, world, {.shuffle = shuffle, .seed = 11});
          EXPECT_EQ(sampler.size(), share);
          const auto mine = sampler.begin_epoch();
          EXPECT_EQ(static_cast<int64_t>(mine.size()), share);
          seen.insert(mine.begin(), mine.end());
        }
        const int64_t padding = share * world - size;
        for (int64_t item = 0; item < size; ++item) {
          const auto count = static_cast<int64_t>(seen.count(item));
          EXPECT_GE(count, 1) << "world " << world << " size " << size;
          EXPECT_LE(count, 1 + (padding + size - 1) / size);
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), size == 0 ? 0 : size + padding);
      }
    }
  }
}

TEST(DistributedSampler, PaddingWrapsAroundAsInPyTorch) {
  // torch.utils.data.DistributedSampler(range(10), 4, rank, shuffle=False) and (range(2), 7, ..): printed by PyTorch 2.
  const std::vector<std::vector<int64_t>> ten = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(DistributedSampler(10, rank, 4, {.shuffle = false}).begin_epoch(), ten[static_cast<size_t>(rank)]);
  }
  const std::vector<int64_t> two = {0, 1, 0, 1, 0, 1, 0};
  for (int rank = 0; rank < 7; ++rank) {
    EXPECT_EQ(DistributedSampler(2, rank, 7, {.shuffle = false}).begin_epoch(),
              (std::vector{two[static_cast<size_t>(rank)]}));
  }
}

TEST(DistributedSampler, DropLastRepeatsNoItem) {
  for (const int world : kWorlds) {
    for (const int64_t size : kSizes) {
      std::set<int64_t> seen;
      for (int rank = 0; rank < world; ++rank) {
        DistributedSampler sampler(size, rank, world, {.seed = 2, .drop_last = true});
        const auto mine = sampler.begin_epoch();
        EXPECT_EQ(static_cast<int64_t>(mine.size()), size / world);
        for (const int64_t item : mine) EXPECT_TRUE(seen.insert(item).second);
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), size / world * world);
    }
  }
}

TEST(DistributedSampler, EvaluationVisitsEachItemExactlyOnce) {
  for (const int world : kWorlds) {
    for (const int64_t size : kSizes) {
      for (const bool shuffle : {false, true}) {
        std::vector<int64_t> seen;
        for (int rank = 0; rank < world; ++rank) {
          DistributedSampler sampler(size, rank, world, {.shuffle = shuffle, .mode = Mode::kEvaluation});
          const auto mine = sampler.begin_epoch();
          EXPECT_EQ(static_cast<int64_t>(mine.size()), sampler.size());
          EXPECT_LE(std::abs(sampler.size() * world - size), world - 1);
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
        EXPECT_TRUE(is_permutation_of(seen, size)) << "world " << world << " size " << size;
      }
    }
  }
}

TEST(DistributedSampler, RanksInterleaveOneSharedOrder) {
  // With one rank the order is that of RandomSampler; more ranks take its items round-robin.
  const auto order = RandomSampler(33, 4).begin_epoch();
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = DistributedSampler(33, rank, 3, {.seed = 4}).begin_epoch();
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine[i], order[static_cast<size_t>(rank) + 3 * i]);
  }
}

TEST(DistributedSampler, BeginEpochAdvancesTheEpoch) {
  DistributedSampler sampler(31, 1, 2, {.seed = 9});
  DistributedSampler other(31, 1, 2, {.seed = 9});
  const auto first = sampler.begin_epoch();
  const auto second = sampler.begin_epoch();
  EXPECT_NE(first, second);
  other.set_epoch(1);
  EXPECT_EQ(second, other.begin_epoch());
  other.set_epoch(0);
  EXPECT_EQ(first, other.begin_epoch());
}

TEST(Sampler, StateResumesInsideAnEpoch) {
  DistributedSampler sampler(40, 0, 2, {.seed = 9});
  sampler.begin_epoch();
  auto rest = sampler.begin_epoch();
  sampler.advance(13);
  rest.erase(rest.begin(), rest.begin() + 13);
  const auto state = sampler.state_dict();
  EXPECT_EQ(state.get<int64_t>("epoch"), 1);
  EXPECT_EQ(state.get<int64_t>("position"), 13);
  EXPECT_EQ(state.get<int64_t>("seed"), 9);

  DistributedSampler restored(40, 0, 2, {.seed = 1});
  restored.begin_epoch();
  restored.load_state_dict(state);
  EXPECT_EQ(restored.begin_epoch(), rest);
  EXPECT_EQ(restored.begin_epoch(), sampler.begin_epoch());
}

TEST(Sampler, StateOfFinishedEpochStartsTheNext) {
  RandomSampler sampler(7, 2);
  sampler.begin_epoch();
  sampler.advance(7);
  RandomSampler restored(7);
  restored.load_state_dict(sampler.state_dict());
  EXPECT_EQ(restored.epoch(), 1);
  EXPECT_EQ(restored.begin_epoch(), sampler.begin_epoch());
}

TEST(Sampler, StateBeforeFirstIterationKeepsSetEpoch) {
  RandomSampler sampler(7, 2);
  sampler.set_epoch(5);
  RandomSampler restored(7);
  restored.load_state_dict(sampler.state_dict());
  EXPECT_EQ(restored.epoch(), 5);
  EXPECT_EQ(restored.begin_epoch(), sampler.begin_epoch());
}

/// Items that `world` ranks visit in the new or resumed epoch, interleaved over the ranks. Each rank advances by
/// `count` items (-1: all); then the ranks' states are written to `states`.
std::vector<int64_t> visit(int64_t size, int world, int64_t count, std::vector<td::State>& states,
                           td::data::DistributedSamplerOptions options) {
  std::vector<std::vector<int64_t>> shares;
  std::vector<td::State> after;
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(size, rank, world, options);
    if (!states.empty())
      sampler.load_state_dict(states[static_cast<size_t>(rank) < states.size() ? static_cast<size_t>(rank) : 0]);
    shares.push_back(sampler.begin_epoch());
    if (count >= 0) shares.back().resize(static_cast<size_t>(count));
    sampler.advance(static_cast<int64_t>(shares.back().size()));
    after.push_back(sampler.state_dict());
  }
  states = after;
  std::vector<int64_t> items;
  for (size_t i = 0; i < shares[0].size(); ++i) {
    for (const auto& share : shares) items.push_back(share[i]);
  }
  return items;
}

TEST(DistributedSampler, ResumeWithDifferentWorldSizeContinuesTheOrder) {
  for (const int before : kWorlds) {
    for (const int after : kWorlds) {
      for (const int64_t size : {31, 32, 33, 100}) {
        for (const bool drop_last : {false, true}) {
          const td::data::DistributedSamplerOptions options = {.seed = 6, .drop_last = drop_last};
          const auto order = RandomSampler(size, 6).begin_epoch();
          const int64_t count = 3;
          std::vector<td::State> states;
          const auto first = visit(size, before, count, states, options);
          const auto rest = visit(size, after, -1, states, options);
          const int64_t left = size - count * before;
          const int64_t expected = drop_last ? left / after : (left + after - 1) / after;
          ASSERT_EQ(static_cast<int64_t>(rest.size()), expected * after);
          std::vector<int64_t> visited = first;
          visited.insert(visited.end(), rest.begin(), rest.end());
          for (size_t i = 0; i < visited.size(); ++i) EXPECT_EQ(visited[i], order[i % order.size()]) << i;
          EXPECT_EQ(states[0].get<int64_t>("epoch"), 1);
          EXPECT_EQ(states[0].get<int64_t>("start"), 0);
        }
      }
    }
  }
}

TEST(DistributedSampler, WorldSizeMayChangeRepeatedlyInAnEpoch) {
  const auto order = RandomSampler(50, 2).begin_epoch();
  std::vector<td::State> states;
  std::vector<int64_t> visited;
  for (const auto& [world, count] : std::vector<std::pair<int, int64_t>>{{4, 3}, {3, 5}, {3, 1}, {2, 4}, {1, 12}}) {
    const auto items = visit(50, world, count, states, {.seed = 2});
    visited.insert(visited.end(), items.begin(), items.end());
  }
  EXPECT_EQ(visited, order);
  EXPECT_EQ(visit(50, 1, -1, states, {.seed = 2}).size(), 50u);  // the next epoch is complete
}

TEST(DistributedSampler, IncompatibleStatesAreRejected) {
  DistributedSampler sampler(40, 1, 2, {.seed = 9});
  sampler.begin_epoch();
  sampler.advance(3);
  const auto state = sampler.state_dict();
  DistributedSampler other(41, 1, 2);
  EXPECT_ERROR(td::StateError, other.load_state_dict(state),
               "DistributedSampler: the state was saved within an epoch of a dataset of 40 items, but this sampler's "
               "has 41; resume with the same dataset, or from the end of an epoch");
  DistributedSampler evaluation(40, 1, 3, {.mode = Mode::kEvaluation});
  EXPECT_ERROR(td::StateError, evaluation.load_state_dict(state),
               "DistributedSampler: an evaluation epoch cannot be resumed with 3 ranks; the state was saved with 2");
  td::State wrong = state;
  wrong.set("start", int64_t{41});
  EXPECT_ERROR(td::StateError, sampler.load_state_dict(wrong),
               "DistributedSampler: start 41 and position 3 of 2 ranks are outside an epoch of 40 items");
  wrong = state;
  wrong.set("start", int64_t{10});
  wrong.set("position", int64_t{16});
  EXPECT_ERROR(td::StateError, sampler.load_state_dict(wrong),
               "DistributedSampler: position 16 in the state is beyond the 15 items of a rank from item 10 on");
  wrong = state;
  wrong.set("world_size", std::numeric_limits<int64_t>::max());
  EXPECT_ERROR(
      td::StateError, sampler.load_state_dict(wrong),
      "DistributedSampler: start 0 and position 3 of 9223372036854775807 ranks are outside an epoch of 40 items");
  EXPECT_EQ(sampler.state_dict().get<int64_t>("position"), 3);
}

TEST(Sampler, MismatchedStatesAreRejected) {
  RandomSampler sampler(7, 2);
  sampler.begin_epoch();
  sampler.advance(3);
  const auto state = sampler.state_dict();
  RandomSampler other(9, 2);
  EXPECT_ERROR(td::StateError, other.load_state_dict(state),
               "Sampler: the state was saved within an epoch of 7 items, but this sampler has 9; resume with the same "
               "dataset, or from the end of an epoch");
  EXPECT_ERROR(td::StateError, other.load_state_dict({}), "State: 'epoch' is missing");

  const auto with = [&](const char* key, int64_t value) {
    td::State changed = state;
    changed.set(key, value);
    return changed;
  };
  EXPECT_ERROR(td::StateError, sampler.load_state_dict(with("epoch", -1)), "Sampler: epoch is -1, expected at least 0");
  EXPECT_ERROR(td::StateError, sampler.load_state_dict(with("position", 8)),
               "Sampler: position in the state is 8, expected 0 <= position <= size 7");
  EXPECT_ERROR(td::StateError, sampler.load_state_dict(with("position", -1)),
               "Sampler: position in the state is -1, expected 0 <= position <= size 7");
  EXPECT_EQ(sampler.epoch(), 0);
}

TEST(Sampler, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, SequentialSampler(-1), "SequentialSampler: size is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, RandomSampler(-1), "RandomSampler: size is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, DistributedSampler(-1, 0, 1), "DistributedSampler: size is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, DistributedSampler(1, 0, 0), "DistributedSampler: world_size is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, DistributedSampler(1, 2, 2),
               "DistributedSampler: rank is 2, expected 0 <= rank < world_size 2");
  EXPECT_ERROR(td::ValueError, DistributedSampler(1, -1, 2),
               "DistributedSampler: rank is -1, expected 0 <= rank < world_size 2");
  EXPECT_ERROR(td::ValueError, SequentialSampler(1).set_epoch(-2), "Sampler: epoch is -2, expected at least 0");
}

}  // namespace
