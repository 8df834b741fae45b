#include <tandem/distributed/backends/single/single_rank.h>

#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

void copy_single_rank(const Collective& c) {
  const std::byte* from = c.inputs.empty() ? c.input : c.inputs[0].data;
  const Part to = c.outputs.empty() ? Part{c.output, c.num_elements} : c.outputs[0];
  if (to.data != from) primitives::copy_bytes(c.device, to.data, from, to.num_elements * size_of(c.dtype));
}

}}}  // namespace tandem::v0::distributed
