#include <tandem/base/ref_counted.h>

namespace tandem { inline namespace v0 {

RefCounted::~RefCounted() = default;  // key function: the vtable is emitted here only

}}  // namespace tandem::v0
