#include <tandem/tensor/storage.h>

#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

RefPtr<Storage> Storage::allocate(Device device, int64_t num_bytes) {
  RefPtr<Storage> storage(new Storage(device, nullptr, num_bytes));
  storage->block_ = tandem::allocate(device, num_bytes);
  storage->data_ = static_cast<std::byte*>(storage->block_.data);
  return storage;
}

RefPtr<Storage> Storage::alias(const RefPtr<Storage>& parent, int64_t offset, int64_t num_bytes) {
  TANDEM_CHECK(StateError, parent, "Storage::alias: parent is null");
  TANDEM_CHECK(IndexError, offset >= 0 && num_bytes >= 0 && offset <= parent->num_bytes() - num_bytes,
               "Storage::alias: bytes [", offset, ", ", offset, " + ", num_bytes, ") are outside of a storage of ",
               parent->num_bytes(), " bytes");
  RefPtr<Storage> storage(new Storage(parent->device(), parent->data() + offset, num_bytes));
  storage->parent_ = parent;
  return storage;
}

RefPtr<Storage> Storage::adopt(Device device, void* data, int64_t num_bytes, std::function<void()> release) {
  RefPtr<Storage> storage(new Storage(device, static_cast<std::byte*>(data), num_bytes));
  storage->release_ = std::move(release);
  return storage;
}

RefPtr<Storage> Storage::provided(Device device, int64_t num_bytes, RefPtr<StorageOwner> owner) {
  RefPtr<Storage> storage(new Storage(device, nullptr, num_bytes));
  storage->owner_ = std::move(owner);
  return storage;
}

void Storage::provide(const RefPtr<Storage>& memory, int64_t offset) {
  data_ = memory->data() + offset;
  parent_ = memory;
}

void Storage::withdraw() {
  data_ = nullptr;
  parent_ = {};
}

Storage::~Storage() {
  if (block_.data != nullptr) deallocate(device_, block_);
  if (release_) release_();
}

}}  // namespace tandem::v0
