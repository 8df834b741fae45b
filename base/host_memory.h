// Memory of the C++ standard library.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

/// allocate(), which needs about `num_bytes` of the standard library's memory. Throws OutOfMemory instead of
/// std::bad_alloc and std::length_error.
template <class F>
auto with_host_memory(const char* op, int64_t num_bytes, F allocate) {
  try {
    return allocate();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw OutOfMemory(with_module_scope(str(op, ": no memory for ", num_bytes, " bytes")));
}

}}  // namespace tandem::v0
