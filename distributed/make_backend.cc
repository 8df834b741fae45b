#include <tandem/base/error.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/shm/shm_backend.h>

namespace tandem::inline v0::distributed {

std::unique_ptr<Backend> make_backend(const ProcessGroupOptions& options) {
  TANDEM_CHECK(ValueError, options.backend == "auto" || options.backend == "shm", "ProcessGroup: there is no backend '",
               options.backend, "'");
  return shm::make_shm_backend(options);
}

}  // namespace tandem::inline v0::distributed
