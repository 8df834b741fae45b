// The kernel of index_range.h.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Complains of one of n indices outside [0, size), if there is one.  op, what: string literals.
void report_bad_index(const KernelContext& context, const char* op, const char* what, int64_t n, int64_t size,
                      const int64_t* index);

}}}  // namespace tandem::v0::cuda
