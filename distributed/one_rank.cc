#include <tandem/distributed/one_rank.h>

#include <tandem/tensor/chores.h>

namespace tandem::inline v0::distributed {

void run_alone(const CollectiveOperation& operation) {
  for (const CopyStep& step : operation.before) chores::copy(step.from, step.to);
  const Collective& c = operation.collective;
  const std::byte* from = c.inputs.empty() ? c.input : c.inputs[0].data;
  const Part to = c.outputs.empty() ? Part{c.output, c.num_elements} : c.outputs[0];
  if (to.data != from) chores::copy_bytes(c.device, to.data, from, to.num_elements * size_of(c.dtype));
  for (const CopyStep& step : operation.after) chores::copy(step.from, step.to);
}

Work start_alone(const CollectiveOperation& operation) {
  run_alone(operation);
  const Promise<void> done;
  done.set_value();
  return done.future();
}

}  // namespace tandem::inline v0::distributed
