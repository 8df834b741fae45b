// The memory that data-parallel training of a model needs, computed before it is trained.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/ddp/gradient_reducer.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Bytes per rank, without activations and buffers.
struct MemoryPlan {
  int64_t parameters = 0;  ///< all the time
  int64_t gradients = 0;   ///< after backward
  int64_t optimizer = 0;   ///< state of the optimizer, and masters of half parameters
  int64_t units = 0;       ///< during a step: gathered parameters and gradients that are not averaged yet
  int64_t total() const { return parameters + gradients + optimizer + units; }  ///< the peak of a step
};
/// One line: "805 MB per rank = parameters 124 MB + gradients 124 MB + optimizer 249 MB + units 308 MB".
TANDEM_API std::string to_string(const MemoryPlan& plan);
TANDEM_API std::ostream& operator<<(std::ostream& out, const MemoryPlan& plan);

/// The plan of `parameters`; the rest as tandem::memory_plan(). unit_of as GradientReducer.
TANDEM_API MemoryPlan plan_memory(const NamedTensors& parameters, const std::vector<std::string>& unit_of,
                                  int num_ranks, const ReducerOptions& options, int states);

}}}  // namespace tandem::v0::distributed
