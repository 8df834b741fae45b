// Checks that all ranks have the same model, and keep it. Private to distributed/.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Compares a digest of names, shapes and dtypes, of the lines of `options`, and of the tuning file (base/tuning.h)
/// across ranks. Throws StateError on every rank, showing the first entry that differs from rank 0. Collective.
void check_same_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters,
                           const std::vector<std::pair<std::string, Tensor>>& buffers, const std::string& options,
                           ProcessGroup& group);

/// Throws StateError on every rank, with names and ranks, if values differ from those of the first rank. Compares
/// hashes. Collective.
void check_same_values(const std::vector<std::pair<std::string, Tensor>>& parameters, ProcessGroup& group);

/// Hash of the elements of a row-major tensor.
int64_t hash_of_values(const Tensor& tensor);

/// Throws StateError on every rank, `error`, the subjects with other hashes than on the first rank, and `advice`.
/// Collective.
void check_same_hashes(const std::vector<std::pair<std::string, int64_t>>& hashes, ProcessGroup& group,
                       const char* error, const char* advice);

/// Throws StateError unless both lists are the same tensors, of a `kind` such as "parameter".
void check_same_tensors(const char* kind, const std::vector<std::pair<std::string, Tensor>>& known,
                        const std::vector<std::pair<std::string, Tensor>>& now);

/// " on ranks 0 2", from the indices of ranks in the group.
std::string on_ranks(const ProcessGroup& group, const std::vector<size_t>& indices);

}}}  // namespace tandem::v0::distributed
