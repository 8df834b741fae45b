#include <tandem/tensor/allocator.h>
#include <tandem/tests/support/test.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tandem { namespace {

/// Each test uses its own CPU device, so that statistics contain nothing else.
class Allocator : public ::testing::Test {
 protected:
  void SetUp() override {
    set_cpu_device_count(2);
    empty_cache(device_);
    ASSERT_EQ(memory_stats(device_).reserved, 0);
    reset_peak_memory(device_);
  }
  void TearDown() override {
    set_memory_limit(device_, 0);
    EXPECT_EQ(memory_stats(device_).allocated, 0);
  }
  const Device device_{"cpu:1"};
};

TEST_F(Allocator, BlockBytesAndFreeMemoryAreReported) {
  EXPECT_EQ(block_bytes(0), 0);
  for (const int64_t asked :
       {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{1000}, int64_t{4097}, (int64_t{1} << 21) + 1}) {
    const Block block = allocate(device_, asked);
    EXPECT_EQ(block_bytes(asked), block.num_bytes);
    EXPECT_EQ(memory_stats(device_).allocated, block_bytes(asked));
    set_memory_limit(device_, 8 << 20);
    EXPECT_EQ(free_memory(device_), (8 << 20) - block_bytes(asked));
    deallocate(device_, block);
    EXPECT_EQ(free_memory(device_), 8 << 20) << "cached blocks count as free";
    set_memory_limit(device_, 0);
  }
  EXPECT_GT(free_memory(device_), 1 << 20);
  const Block held = allocate(device_, 2048);
  set_memory_limit(device_, 1024);
  EXPECT_EQ(free_memory(device_), 0) << "more is held than the limit allows";
  deallocate(device_, held);
  EXPECT_THROW(static_cast<void>(free_memory(Device("cpu:63"))), DeviceError);
}

TEST_F(Allocator, RequestsAreRoundedToSizeClasses) {
  const int64_t expected[][2] = {
      {1, 64},      {64, 64},     {65, 128},    {192, 192},   {193, 256},   {256, 256},
      {257, 320},   {320, 320},   {321, 384},   {512, 512},   {513, 640},   {641, 768},
      {1000, 1024}, {1025, 1280}, {1281, 1536}, {1793, 2048}, {4097, 5120}, {(1 << 21) + 1, (1 << 21) + (1 << 19)}};
  for (const auto& [asked, size] : expected) {
    const Block block = allocate(device_, asked);
    EXPECT_EQ(block.num_bytes, size) << asked;
    EXPECT_EQ(memory_stats(device_).allocated, size);
    deallocate(device_, block);
  }
}

TEST_F(Allocator, BlocksFitTheirClassAndAreAligned) {
  for (int64_t base = 1; base <= int64_t{1} << 24; base *= 2) {
    for (int64_t size : {base, base + 1, base * 5 / 4, base * 5 / 4 + 1, base * 7 / 4 + 3}) {
      const Block block = allocate(device_, size);
      EXPECT_GE(block.num_bytes, size);
      EXPECT_LE(block.num_bytes, std::max<int64_t>(size + 63, size * 5 / 4));
      const uintptr_t alignment = size >= 2 << 20 ? 2 << 20 : 64;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % alignment, 0u);
      std::memset(block.data, 0x5a, static_cast<size_t>(size));
      deallocate(device_, block);
    }
  }
}

TEST_F(Allocator, ZeroBytesGiveNullBlock) {
  const Block block = allocate(device_, 0);
  EXPECT_EQ(block.data, nullptr);
  EXPECT_EQ(block.num_bytes, 0);
  deallocate(device_, block);
  EXPECT_EQ(memory_stats(device_).reserved, 0);
  EXPECT_THROW(allocate(device_, -1), ValueError);
}

TEST_F(Allocator, FreedBlocksAreReused) {
  const Block first = allocate(device_, 1000);
  deallocate(device_, first);
  EXPECT_EQ(memory_stats(device_).allocated, 0);
  EXPECT_EQ(memory_stats(device_).reserved, 1024);
  const Block again = allocate(device_, 900);
  EXPECT_EQ(again.data, first.data);
  const Block other = allocate(device_, 900);
  EXPECT_NE(other.data, first.data);
  EXPECT_EQ(memory_stats(device_).allocated, 2048);
  EXPECT_EQ(memory_stats(device_).reserved, 2048);
  deallocate(device_, again);
  deallocate(device_, other);
  EXPECT_EQ(memory_stats(device_).reserved, 2048);
  empty_cache(device_);
  EXPECT_EQ(memory_stats(device_).reserved, 0);
}

TEST_F(Allocator, EmptyCacheKeepsBlocksInUse) {
  const Block kept = allocate(device_, 64);
  const Block large = allocate(device_, 3 << 20);
  std::memset(kept.data, 7, 64);
  deallocate(device_, large);
  empty_cache(device_);
  EXPECT_EQ(memory_stats(device_).reserved, 64);
  EXPECT_EQ(static_cast<char*>(kept.data)[63], 7);
  deallocate(device_, kept);
}

TEST_F(Allocator, PeakIsMaximumSinceReset) {
  const Block a = allocate(device_, 128);
  const Block b = allocate(device_, 256);
  deallocate(device_, b);
  EXPECT_EQ(memory_stats(device_).peak_allocated, 384);
  reset_peak_memory(device_);
  EXPECT_EQ(memory_stats(device_).peak_allocated, 128);
  deallocate(device_, allocate(device_, 64));
  EXPECT_EQ(memory_stats(device_).peak_allocated, 192);
  deallocate(device_, a);
}

TEST_F(Allocator, MemoryLimitIsExact) {
  set_memory_limit(device_, 1024);
  EXPECT_EQ(memory_stats(device_).limit, 1024);
  const Block a = allocate(device_, 512);
  const Block b = allocate(device_, 512);
  EXPECT_ERROR(OutOfMemory, allocate(device_, 3),
               "allocate: cpu:1 is out of memory\n"
               "  requested  3 bytes (64 rounded up)\n"
               "  allocated  1024 bytes\n"
               "  limit      1024 bytes");
  EXPECT_EQ(memory_stats(device_).allocated, 1024);
  EXPECT_EQ(memory_stats(device_).reserved, 1024);
  deallocate(device_, a);
  const Block c = allocate(device_, 512);
  deallocate(device_, b);
  deallocate(device_, c);
}

TEST_F(Allocator, CacheIsReleasedBeforeLimitIsExceeded) {
  set_memory_limit(device_, 1024);
  const Block kept = allocate(device_, 64);
  deallocate(device_, allocate(device_, 512));
  EXPECT_EQ(memory_stats(device_).reserved, 576);
  const Block large = allocate(device_, 768);  // fits only without the cached 512
  EXPECT_EQ(memory_stats(device_).reserved, 832);
  deallocate(device_, large);
  deallocate(device_, kept);
}

TEST_F(Allocator, LaterLimitAppliesToCachedBlocks) {
  const Block a = allocate(device_, 512);
  deallocate(device_, allocate(device_, 512));
  set_memory_limit(device_, 512);
  EXPECT_THROW(allocate(device_, 512), OutOfMemory);
  set_memory_limit(device_, 0);
  deallocate(device_, allocate(device_, 512));
  deallocate(device_, a);
  EXPECT_THROW(set_memory_limit(device_, -1), ValueError);
}

TEST_F(Allocator, LimitAppliesToOneDeviceOnly) {
  set_memory_limit(device_, 64);
  const int64_t before = memory_stats(Device()).allocated;
  const Block block = allocate(Device(), 1024);
  EXPECT_EQ(memory_stats(Device()).allocated, before + 1024);
  EXPECT_EQ(memory_stats(device_).allocated, 0);
  deallocate(Device(), block);
}

TEST_F(Allocator, OversizedRequestThrowsOutOfMemory) {
  EXPECT_THROW(allocate(device_, INT64_MAX), OutOfMemory);
  // Accepted by the allocator, refused by the system.
  EXPECT_ERROR(OutOfMemory, allocate(device_, int64_t{1} << 46),
               "allocate: cpu:1 is out of memory\n"
               "  requested  70368744177664 bytes (70368744177664 rounded up)\n"
               "  allocated  0 bytes\n"
               "  limit      none; the operating system refused");
  EXPECT_EQ(memory_stats(device_).reserved, 0);
}

TEST_F(Allocator, ConcurrentAllocationsKeepStatisticsExact) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::vector<Block> blocks;
      for (int i = 0; i < 500; ++i) {
        const Block block = allocate(device_, 64 * (1 + (i * 7 + t) % 33));
        std::memset(block.data, t, static_cast<size_t>(block.num_bytes > 64 ? 64 : block.num_bytes));
        blocks.push_back(block);
        if (i % 3 == 2) {
          EXPECT_EQ(*static_cast<char*>(blocks.front().data), t);
          deallocate(device_, blocks.front());
          blocks.erase(blocks.begin());
        }
        if (i % 100 == 99) empty_cache(device_);
      }
      for (const Block& block : blocks) deallocate(device_, block);
    });
  }
  for (auto& thread : threads) thread.join();
  empty_cache(device_);
  EXPECT_EQ(memory_stats(device_).allocated, 0);
  EXPECT_EQ(memory_stats(device_).reserved, 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(Allocator, FreedAndPaddingBytesArePoisoned) {
  for (int64_t size : {1, 3, 7, 31, 32, 33, 63, 64, 100, 3000000}) {
    const Block block = allocate(device_, size);
    const char* data = static_cast<const char*>(block.data);
    for (int64_t i : {int64_t{0}, size / 2, size - 1}) EXPECT_FALSE(__asan_address_is_poisoned(data + i)) << size;
    if (size < block.num_bytes) {
      EXPECT_TRUE(__asan_address_is_poisoned(data + size)) << size;
      EXPECT_TRUE(__asan_address_is_poisoned(data + block.num_bytes - 1)) << size;
    }
    deallocate(device_, block);
    EXPECT_TRUE(__asan_address_is_poisoned(data)) << size;
    EXPECT_TRUE(__asan_address_is_poisoned(data + size - 1)) << size;
  }
}
#endif

}}  // namespace tandem
