// For builds without CUDA. They have no GPU tensors, so no caller reaches these functions.
#include <tandem/distributed/backends/nccl/nccl_backend.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

[[noreturn]] void fail() {
  throw DeviceError("NCCL: this build of tandem has no CUDA support; build with --config=cuda");
}

}  // namespace

NcclId NcclBackend::make_id() { fail(); }
std::string NcclBackend::version() { fail(); }
std::shared_ptr<NcclBackend> NcclBackend::join(Options, const NcclId&, Clock::time_point) { fail(); }
void NcclBackend::check(const Collective&) {}

}}}  // namespace tandem::v0::distributed
