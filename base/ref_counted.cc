#include <tandem/base/ref_counted.h>

namespace tandem { inline namespace v0 {

RefCounted::~RefCounted() = default;  // the key function: one vtable in the library

}}  // namespace tandem::v0
