// Counts of a training step, compared with a table in the source. A count needs no clock, so a busy machine does not
// change it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/benchmarks/support/cases.h>
#include <tandem/tensor/device.h>

namespace tandem::testing {

struct Count {
  std::string name;
  int64_t value = 0;
};

/// Uses only the first `batch` items of the case's data and, if they are sequences, the first `length` tokens of each.
void limit_data(benchmarks::TrainingCase& training, int64_t batch, int64_t length = 64);

/// Runs `step` several times and returns the counts of one run.
///
///     heap allocations     calls of operator new by this thread
///     blocks               blocks of device memory that this thread requested, from the allocator's cache or new
///     system allocations   calls of mmap and aligned_alloc by this thread: blocks that the cache of a CPU lacks
///     peak bytes           most memory allocated on `device` during the step, without what was allocated before
///
/// and trace_counts.
std::vector<Count> count_step(const std::function<void()>& step, Device device);

/// Page faults of a step: the least of several steps, because the kernel also takes pages away from idle processes.
/// Zero if a step only touches memory that the steps before it have used.
int64_t count_page_faults(const std::function<void()>& step);

/// Per name: spans of operations ("op"), nodes of backward ("backward"), primitives ("copy", with their bytes), and the
/// algorithms that they ran.
std::vector<Count> trace_counts(const std::vector<TraceEvent>& events);

/// Fails unless the counts are those of the table, which has entries "<name> <value>;". The failure has a table of
/// the differences and the text of the new table.
void expect_counts(const std::string& title, const std::string& table, const std::vector<Count>& counts);

}  // namespace tandem::testing
