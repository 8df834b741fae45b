// For builds without CUDA. They have no GPU tensors, so no caller reaches these functions.
#include <tandem/distributed/backends/nccl/nccl_backend.h>

namespace tandem { inline namespace v0 { namespace distributed {

NcclId NcclBackend::make_id() {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

std::string NcclBackend::version() {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

std::shared_ptr<NcclBackend> NcclBackend::join(Options, const NcclId&, Clock::time_point,
                                               const std::function<bool()>&) {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

void NcclBackend::check(const Collective&) {}

}}}  // namespace tandem::v0::distributed
