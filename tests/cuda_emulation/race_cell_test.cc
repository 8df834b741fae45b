// Compares the race check of one cell with a check that stores all accesses, for random sequences up to the first race.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/tests/cuda_emulation/race_cell.h>
#include <tandem/tests/cuda_emulation/random.h>

namespace cuda_emulation { namespace {

constexpr uint32_t kWarps = 3, kLanes = 4;  // lanes of 32; few, so that accesses conflict often

struct Access {
  uint32_t block, interval, thread, mask;
  AccessKind kind;
};

bool ordered(const Access& a, const Access& b) {
  return a.block == b.block && (a.interval != b.interval || a.thread == b.thread);
}

bool conflict(const Access& a, const Access& b) {
  const bool both_read = a.kind == kPlainRead && b.kind == kPlainRead,
             both_atomic = a.kind == kAtomic && b.kind == kAtomic;
  return (a.mask & b.mask) != 0 && !both_read && !both_atomic;
}

// The masks and kinds of a sequence determine which code paths it tests.
void compare(uint64_t seed, const std::vector<uint32_t>& masks, const std::vector<AccessKind>& kinds, int& races,
             int& ends) {
  Random random(seed);
  RaceCell cell{};
  std::vector<SplitCell> splits;
  std::vector<Access> past;
  const uint32_t launch_first = 1000;
  uint32_t serial = launch_first, block = 0, interval = 0, block_first = ++serial;
  cell.write = AccessRecord::make(999, 5, 0xF, kPlainWrite);  // from an earlier launch
  for (int step = 0; step < 40; ++step) {
    switch (random.below(12)) {
      case 0:
        ++block;
        interval = 0;
        block_first = ++serial;
        break;
      case 1:
      case 2:
        ++interval;
        ++serial;
        break;
      default: break;
    }
    Access now{};
    now.block = block;
    now.interval = interval;
    now.thread = static_cast<uint32_t>(random.below(kWarps) * 32 + random.below(kLanes));
    now.mask = masks[random.below(masks.size())];
    now.kind = kinds[random.below(kinds.size())];
    bool expected = false;
    for (const Access& earlier : past) {
      expected = expected || (conflict(earlier, now) && !ordered(earlier, now));
    }
    bool written = true;
    for (uint32_t i = 0; i < 4; ++i) {
      bool byte = (now.mask >> i & 1) == 0;
      for (const Access& earlier : past) {
        byte = byte || (earlier.kind == kPlainWrite && (earlier.mask >> i & 1) != 0);
      }
      written = written && byte;
    }
    bool initialised = false;
    const auto race =
        touch_cell(cell, {serial, block_first, now.thread}, now.mask, now.kind, launch_first, splits, &initialised);
    ASSERT_EQ(race.has_value(), expected) << "seed " << seed << ", step " << step;
    if (expected) {
      ++races;
      return;
    }
    ASSERT_EQ(initialised, written) << "seed " << seed << ", step " << step;
    past.push_back(now);
  }
  ++ends;
}

struct Draw {
  const char* name;
  std::vector<uint32_t> masks;
  std::vector<AccessKind> kinds;
};

TEST(RaceCell, FindsSameRacesAsExhaustiveCheck) {
  const std::vector<Draw> draws = {
      {"reads and few writes",
       {0xF},
       {kPlainRead, kPlainRead, kPlainRead, kPlainRead, kPlainRead, kPlainRead, kPlainWrite}},
      {"atomics and few reads", {0xF}, {kAtomic, kAtomic, kAtomic, kAtomic, kAtomic, kAtomic, kPlainRead}},
      {"atomics and few writes", {0xF}, {kAtomic, kAtomic, kAtomic, kAtomic, kAtomic, kAtomic, kPlainWrite}},
      {"everything", {0xF}, {kPlainRead, kAtomic, kPlainWrite}},
      {"bytes", {1, 2, 4, 8, 1, 2, 4, 8, 3, 12, 15}, {kPlainRead, kPlainRead, kPlainRead, kPlainWrite}},
      {"halves", {3, 12}, {kPlainRead, kPlainRead, kPlainRead, kPlainRead, kPlainRead, kPlainWrite, kAtomic}},
      {"reads", {0xF, 3}, {kPlainRead}},
  };
  for (const Draw& draw : draws) {
    int races = 0, ends = 0;
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      compare(seed, draw.masks, draw.kinds, races, ends);
      ASSERT_FALSE(HasFatalFailure()) << draw.name;
    }
    if (std::string(draw.name) == "reads") {
      EXPECT_EQ(races, 0);
    } else {
      EXPECT_GT(races, 1000) << draw.name;
    }
  }
}

}}  // namespace cuda_emulation
