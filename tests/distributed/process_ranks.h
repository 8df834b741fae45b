// Checks for the functions of process ranks, which cannot use GoogleTest expectations.
#pragma once

#include <chrono>
#include <cstring>
#include <string>

#include <tandem/base/error.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

inline constexpr std::chrono::seconds kLongTimeout{100};

/// Fails the rank, and thereby the test, showing both values.
template <class A, class B>
void expect_equal(const A& got, const B& want, const std::string& what) {
  if (!(got == want)) throw StateError(str(what, ": got '", got, "', want '", want, "'"));
}

/// For row-major tensors of one dtype.
inline bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto num_bytes = static_cast<size_t>(a.numel() * size_of(a.dtype()));
  return a.shape() == b.shape() && (num_bytes == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), num_bytes) == 0);
}

}}}  // namespace tandem::v0::distributed
