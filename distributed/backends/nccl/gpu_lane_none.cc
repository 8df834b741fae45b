// For builds without CUDA. They have no GPU tensors, so no caller reaches these functions.
#include <tandem/distributed/backends/nccl/gpu_lane.h>

namespace tandem { inline namespace v0 { namespace distributed {

NcclId GpuLane::make_id() {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

std::string GpuLane::version() {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

std::shared_ptr<GpuLane> GpuLane::join(Options, const NcclId&, Clock::time_point, const std::function<bool()>&) {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

void GpuLane::check(const Collective&) {}

}}}  // namespace tandem::v0::distributed
