// Warnings where a GPU library does not compute an operation. Private to ops/.
#pragma once

#include <string>

#include <tandem/base/log.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Warns that tandem's own kernels compute a problem. tools/gpu_check collects these lines by "does not compute".
inline void warn_fallback(const char* library, const std::string& problem, const std::string& reason) {
  log(LogLevel::kWarning, library, " does not compute ", problem, " (", reason,
      "): tandem's own kernels do, which may be much slower");
}

}}}  // namespace tandem::v0::cuda
