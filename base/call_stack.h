// Call stacks, which show the line of a program that called an operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A recorded call stack. Recording takes microseconds, caller() milliseconds.
class TANDEM_API CallStack {
 public:
  /// Creates an empty stack.
  CallStack() = default;
  /// Records the calling thread's stack.
  static CallStack here();
  /// The innermost function outside the library, such as "train.cc:42 in main". Without debug information (-g) only the
  /// name of the function, "main"; "" if the name is unknown too.
  std::string caller() const;

 private:
  std::vector<uintptr_t> addresses_;  ///< of the calls, innermost first
};

}}  // namespace tandem::v0
