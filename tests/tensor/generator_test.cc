#include <tandem/tensor/generator.h>

#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, OutputsMatchRandom123Vectors) {
  // kat_vectors of Random123, the authors' implementation.
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes}, {kOnes, kOnes, kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxState, CounterCombinesPositionRankAndDevice) {
  const PhiloxState state{0x299f31d0a4093822, 0x13198a2e, 0x03707344, 0x85a308d3243f6a80};
  EXPECT_EQ(state.block(8), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Generator, ReservationsAreWholeBlocks) {
  Generator generator(7, 3, 1);
  EXPECT_EQ(generator.seed(), 7u);
  const int64_t sizes[] = {0, 1, 3, 4, 5, 31, 32, 33};
  const uint64_t starts[] = {0, 0, 1, 2, 3, 5, 13, 21};
  for (int i = 0; i < 8; ++i) {
    const PhiloxState state = generator.reserve(sizes[i]);
    EXPECT_EQ(state.offset, starts[i]) << sizes[i];
    EXPECT_EQ(state.seed, 7u);
    EXPECT_EQ(state.rank, 3u);
    EXPECT_EQ(state.device_number, 1u);
  }
  generator.manual_seed(8);
  EXPECT_EQ(generator.reserve(1).offset, 0u);
  EXPECT_EQ(generator.reserve(1).seed, 8u);
  EXPECT_THROW(generator.reserve(-1), ValueError);
}

TEST(Generator, RestoredStateContinuesTheStream) {
  Generator original(0xfedcba9876543210, 2, 5);
  static_cast<void>(original.reserve(33));
  const State state = original.state_dict();
  Generator restored(1, 2, 5);
  restored.load_state_dict(state);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(restored.reserve(7).block(1), original.reserve(7).block(1));
}

TEST(Generator, LoadedStateKeepsOwnRankAndDevice) {
  Generator first(9, 0, 1);
  static_cast<void>(first.reserve(33));
  Generator other(4, 3, 2);
  other.load_state_dict(first.state_dict());
  const PhiloxState position = other.reserve(1);
  EXPECT_EQ(position.seed, 9u);
  EXPECT_EQ(position.offset, 9u);
  EXPECT_EQ(position.rank, 3u);
  EXPECT_EQ(position.device_number, 2u);
}

TEST(Generator, IncompleteStateChangesNothing) {
  Generator generator(31);
  static_cast<void>(generator.reserve(4));
  State state;
  state.set("seed", int64_t{5});
  EXPECT_ERROR(StateError, generator.load_state_dict(state), "State: 'offset' is missing");
  EXPECT_EQ(generator.seed(), 31u);
  EXPECT_EQ(generator.reserve(1).offset, 1u);
}

class DefaultGenerator : public ::testing::Test {
 protected:
  RankContext context_;
  RankContext::Use use_{context_};
};

TEST_F(DefaultGenerator, EachRankHasItsOwnGenerator) {
  manual_seed(7);
  Generator& mine = default_generator();
  EXPECT_EQ(&mine, &default_generator());
  EXPECT_EQ(mine.seed(), 7u);
  const Words first = mine.reserve(4).block(0);
  RankContext other;
  other.rank = 1;
  RankContext::Use use(other);
  manual_seed(7);
  EXPECT_NE(&mine, &default_generator());
  EXPECT_NE(default_generator().reserve(4).block(0), first) << "the same seed must not make ranks equal";
}

TEST_F(DefaultGenerator, DevicesHaveDifferentStreams) {
  std::set<Words> drawn;
  for (const char* device : {"cpu", "cpu:1", "cpu:63", "cuda:0", "cuda:1"}) {
    drawn.insert(default_generator(Device(device)).reserve(4).block(0));
  }
  EXPECT_EQ(drawn.size(), 5u);
}

TEST_F(DefaultGenerator, RankDeviceDrawsEqualBitsOnAnyDevice) {
  EXPECT_EQ(rank_device(), Device());
  const Words on_cpu = default_generator().reserve(4).block(0);
  RankContext other;
  RankContext::Use use(other);
  set_rank_device(Device("cuda:3"));
  EXPECT_EQ(rank_device(), Device("cuda:3"));
  EXPECT_EQ(default_generator(Device("cuda:3")).reserve(4).block(0), on_cpu);
  EXPECT_NE(default_generator(Device("cpu")).reserve(4).block(0), on_cpu);
  set_rank_device(Device("cuda:3"));  // no change
  EXPECT_ERROR(StateError, set_rank_device(Device("cpu")),
               "set_rank_device: random numbers were already drawn with rank device cuda:3; call it before the first "
               "use of a generator");
}

TEST_F(DefaultGenerator, ManualSeedReachesExistingAndNewGenerators) {
  Generator& before = default_generator();
  static_cast<void>(before.reserve(100));
  manual_seed(33);
  EXPECT_EQ(before.seed(), 33u);
  EXPECT_EQ(before.reserve(1).offset, 0u);
  EXPECT_EQ(default_generator(Device("cpu:1")).seed(), 33u);
}

TEST_F(DefaultGenerator, ThreadsOfOneRankShareTheGenerator) {
  Generator& mine = default_generator();
  RankContext copy = context_;
  RankContext::Use use(copy);
  EXPECT_EQ(&default_generator(), &mine);
}

TEST(GeneratorPositions, RestoredPositionsDrawTheSameNumbers) {
  manual_seed(3);
  default_generator().reserve(10);
  const GeneratorPositions positions;
  const uint64_t offset = default_generator().reserve(4).offset;
  default_generator(Device(DeviceType::kCPU, 1)).reserve(8);  // did not exist at the time of `positions`
  manual_seed(9);
  positions.restore();
  EXPECT_EQ(default_generator().reserve(4).offset, offset);
  EXPECT_EQ(default_generator().seed(), 3u);
  EXPECT_EQ(default_generator(Device(DeviceType::kCPU, 1)).reserve(8).offset, 0u);
  EXPECT_EQ(default_generator(Device(DeviceType::kCPU, 1)).seed(), 3u);
}

}}  // namespace tandem
