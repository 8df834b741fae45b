// Adds a line to the text of an exception. Private to data/.
#pragma once

#include <string>

namespace tandem { inline namespace v0 { namespace data {

/// Call inside a catch block: rethrows the current exception with the same type and a text that ends in "\n
/// <context>". Exceptions without a free text (std::bad_alloc, BackendError, and types that derive neither from
/// tandem's errors nor from std::runtime_error or std::logic_error) are rethrown unchanged.
[[noreturn]] void rethrow_with_context(const std::string& context);

}}}  // namespace tandem::v0::data
