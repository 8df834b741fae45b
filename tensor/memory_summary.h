// Memory usage as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The memory statistics of all devices (memory_stats), one line per device:
///
///     device   allocated        peak    reserved       limit
///     cpu       17.5 MiB    40.0 MiB    48.0 MiB        none
///
/// and, if `named` is not empty (for example a module's named_parameters()), the bytes of these tensors on each device
/// and the ten largest tensors. Tensors that share a storage (tied parameters, slices of a bucket) are counted
/// individually.
TANDEM_API std::string memory_summary(const std::vector<std::pair<std::string, Tensor>>& named = {});

}}  // namespace tandem::v0
