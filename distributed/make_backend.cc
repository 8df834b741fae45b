#include <tandem/base/error.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/gloo/gloo_backend.h>
#include <tandem/distributed/hosts/host_layout.h>
#include <tandem/distributed/rendezvous.h>
#include <tandem/distributed/shm/shm_backend.h>

namespace tandem::inline v0::distributed {

namespace {

[[noreturn]] void fail_for_hosts(const ProcessGroupOptions& options, const HostLayout& layout) {
  std::string text = str("shared memory joins the ranks of one host only, and these are on ", layout.num_hosts());
  for (const std::vector<int>& ranks : layout.hosts) {
    text += ranks.size() == 1 ? "\n  rank" : "\n  ranks";
    for (const int rank : ranks) text += str(" ", job_rank(options, rank));
  }
  fail_to_join(options, text);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const ProcessGroupOptions& options) {
  TANDEM_CHECK(ValueError, options.backend == "auto" || options.backend == "shm" || options.backend == "gloo",
               "ProcessGroup: there is no backend '", options.backend, "': there are auto, shm and gloo");
  if (options.backend == "gloo") return gloo::make_gloo_backend(options);
  const HostLayout layout = find_hosts(options);
  if (layout.num_hosts() > 1) fail_for_hosts(options, layout);
  return shm::make_shm_backend(options);
}

}  // namespace tandem::inline v0::distributed
