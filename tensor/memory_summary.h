// What holds memory, as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The accounts of all devices (memory_stats), a line each:
///
///     device   allocated        peak    reserved       limit
///     cpu       17.5 MiB    40.0 MiB    48.0 MiB        none
///
/// then, if `named` holds tensors, such as a module's named_parameters(), their bytes on each device and the largest
/// ten of them.  Tensors of one storage, tied parameters or slices of a bucket, each count with their own size.
TANDEM_API std::string memory_summary(const std::vector<std::pair<std::string, Tensor>>& named = {});

}}  // namespace tandem::v0
