#include <tandem/distributed/ddp/memory_plan.h>

#include <algorithm>
#include <ostream>

#include <tandem/distributed/ddp/bucket_plan.h>
#include <tandem/distributed/ddp/parameter_units.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

std::string megabytes(int64_t bytes) { return str((bytes + 500'000) / 1'000'000, " MB"); }

}  // namespace

std::string to_string(const MemoryPlan& plan) {
  return str(megabytes(plan.total()), " per rank = parameters ", megabytes(plan.parameters), " + gradients ",
             megabytes(plan.gradients), " + optimizer ", megabytes(plan.optimizer), " + units ", megabytes(plan.units));
}

std::ostream& operator<<(std::ostream& out, const MemoryPlan& plan) { return out << to_string(plan); }

MemoryPlan plan_memory(const NamedTensors& parameters, const std::vector<std::string>& unit_of, int num_ranks,
                       const ReducerOptions& options, int states) {
  const Shard level = options.shard;
  MemoryPlan plan;
  std::vector<ParameterInfo> infos;
  std::vector<std::string> names = {""};
  std::vector<size_t> units;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].second;
    if (!tensor.requires_grad()) {
      plan.parameters += tensor.num_bytes();
      continue;
    }
    infos.push_back({parameters[i].first, tensor.numel(), tensor.dtype(), tensor.device()});
    const auto found = std::find(names.begin(), names.end(), unit_of[i]);
    units.push_back(static_cast<size_t>(found - names.begin()));
    if (found == names.end()) names.push_back(unit_of[i]);
  }
  const bool has_units = level == Shard::kParameters;
  const BucketPlan buckets = has_units ? plan_units(infos, units, num_ranks)
                                       : plan_buckets(infos, options.buckets, level == Shard::kNone ? 0 : num_ranks);
  int64_t largest = 0;  // bytes of a bucket
  std::vector<int64_t> bytes_of(names.size());
  for (const BucketPlan::Bucket& bucket : buckets.buckets) {
    const DType dtype = buckets.buffers[static_cast<size_t>(bucket.buffer)].dtype;
    const int64_t count = bucket.end - bucket.begin, bytes = count * static_cast<int64_t>(size_of(dtype));
    const int64_t state = count * (states + (size_of(dtype) == 2 ? 1 : 0)) * std::max<int64_t>(size_of(dtype), 4);
    plan.parameters += level >= Shard::kParameters ? bytes / num_ranks : bytes;
    plan.gradients += level >= Shard::kGradients ? bytes / num_ranks : bytes;
    plan.optimizer += level >= Shard::kOptimizer ? state / num_ranks : state;
    largest = std::max(largest, bytes);
    if (has_units) bytes_of[units[static_cast<size_t>(bucket.first_parameter)]] += bytes;
  }
  if (level == Shard::kGradients) plan.units = 3 * largest;
  if (has_units) plan.units = memory_of_units(bytes_of, options.keep_after_forward);
  return plan;
}

}}}  // namespace tandem::v0::distributed
