#include <tandem/tensor/storage.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(Storage, DestructorReleasesOwnedMemory) {
  set_cpu_device_count(2);
  const Device device("cpu:1");
  const int64_t before = memory_stats(device).allocated;
  {
    const RefPtr<Storage> storage = Storage::allocate(device, 100);
    EXPECT_EQ(storage->num_bytes(), 100);
    EXPECT_EQ(storage->device(), device);
    std::memset(storage->data(), 1, 100);
    EXPECT_EQ(memory_stats(device).allocated, before + 128);
  }
  EXPECT_EQ(memory_stats(device).allocated, before);
  EXPECT_EQ(Storage::allocate(device, 0)->data(), nullptr);
}

TEST(Storage, FailedAllocationLeavesNoMemoryAllocated) {
  set_cpu_device_count(2);
  const Device device("cpu:1");
  set_memory_limit(device, 64);
  EXPECT_THROW(Storage::allocate(device, 65), OutOfMemory);
  set_memory_limit(device, 0);
  EXPECT_EQ(memory_stats(device).allocated, 0);
}

TEST(Storage, AliasHasOwnVersionAndKeepsMemory) {
  const int64_t before = memory_stats(Device()).allocated;
  RefPtr<Storage> parent = Storage::allocate(Device(), 96);
  RefPtr<Storage> alias = Storage::alias(parent, 32, 64);
  EXPECT_EQ(alias->data(), parent->data() + 32);
  EXPECT_EQ(alias->num_bytes(), 64);
  alias->bump_version("add_");
  EXPECT_EQ(alias->version(), 1u);
  EXPECT_EQ(parent->version(), 0u);
  parent = nullptr;
  std::memset(alias->data(), 7, 64);
  EXPECT_GT(memory_stats(Device()).allocated, before);
  alias = nullptr;
  EXPECT_EQ(memory_stats(Device()).allocated, before);
}

TEST(Storage, AliasOutsideParentIsRejected) {
  const RefPtr<Storage> parent = Storage::allocate(Device(), 96);
  EXPECT_EQ(Storage::alias(parent, 96, 0)->num_bytes(), 0);
  for (const auto& [offset, size] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 3}, {33, 64}, {0, 97}, {7, -1}, {INT64_MAX, INT64_MAX}}) {
    EXPECT_THROW(Storage::alias(parent, offset, size), IndexError) << offset << " " << size;
  }
  EXPECT_ERROR(IndexError, Storage::alias(parent, 33, 64),
               "Storage::alias: bytes [33, 33 + 64) are outside of a storage of 96 bytes");
  EXPECT_THROW(Storage::alias(nullptr, 0, 0), StateError);
}

TEST(Storage, AdoptedMemoryIsReleasedOnce) {
  std::vector<float> values(7);
  int released = 0;
  {
    RefPtr<Storage> storage = Storage::adopt(Device(), values.data(), 28, [&] { ++released; });
    const RefPtr<Storage> alias = Storage::alias(storage, 4, 8);
    storage = nullptr;
    EXPECT_EQ(released, 0);
    EXPECT_EQ(static_cast<void*>(alias->data()), &values[1]);
  }
  EXPECT_EQ(released, 1);
  Storage::adopt(Device(), values.data(), 28, {});
}

TEST(Storage, BumpVersionRecordsLastWriter) {
  const RefPtr<Storage> storage = Storage::allocate(Device(), 64);
  EXPECT_EQ(storage->version(), 0u);
  EXPECT_STREQ(storage->last_writer(), "");
  storage->bump_version("add_");
  storage->bump_version("mul_");
  EXPECT_EQ(storage->version(), 2u);
  EXPECT_STREQ(storage->last_writer(), "mul_");
}

}}  // namespace tandem
