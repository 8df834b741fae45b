// Checks that all ranks have the same model. Private to distributed/.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Compares a digest of names, shapes and dtypes, of `hooks`, and of the tuning file (base/tuning.h) across ranks.
/// Throws StateError on every rank, showing the first entry that differs from rank 0. Collective.
void check_same_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters,
                           const std::vector<std::pair<std::string, Tensor>>& buffers, const std::string& hooks,
                           ProcessGroup& group);

}}}  // namespace tandem::v0::distributed
