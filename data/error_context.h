// Adding a line to an exception that passes by.  Private to data/.
#pragma once

#include <string>

namespace tandem { inline namespace v0 { namespace data {

/// Call inside a catch block: rethrows the current exception as one of the same kind whose text ends in "\n <context>".
/// A type that carries no free text (an exception that is neither tandem's nor std::runtime_error's or
/// std::logic_error's kin, std::bad_alloc, BackendError) is rethrown as it is.
[[noreturn]] void rethrow_with_context(const std::string& context);

}}}  // namespace tandem::v0::data
