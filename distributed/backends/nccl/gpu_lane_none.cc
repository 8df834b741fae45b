// In builds without CUDA there are no tensors on GPUs, so nothing gets here.
#include <tandem/distributed/backends/nccl/gpu_lane.h>

namespace tandem { inline namespace v0 { namespace distributed {

NcclId GpuLane::make_id() { throw DeviceError("this build of tandem has no NCCL support"); }

std::string GpuLane::version() { throw DeviceError("this build of tandem has no NCCL support"); }

std::shared_ptr<GpuLane> GpuLane::join(Options, const NcclId&, Clock::time_point, const std::function<bool()>&) {
  throw DeviceError("this build of tandem has no NCCL support");
}

void GpuLane::check(const Collective&) {}

}}}  // namespace tandem::v0::distributed
