#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/distributed/rendezvous/rendezvous.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

[[noreturn]] void fail_for_hosts(const ProcessGroupOptions& options, const HostLayout& layout) {
  std::string text =
      str("the shm backend requires all ranks on one host, but they are on ", layout.num_hosts(), " hosts");
  for (const std::vector<int>& ranks : layout.hosts) {
    text += ranks.size() == 1 ? "\n  rank" : "\n  ranks";
    for (const int rank : ranks) text += str(" ", job_rank(options, rank));
  }
  fail_to_join(options, text);
}

std::unique_ptr<Backend> make_hierarchical_backend(const ProcessGroupOptions& options, const HostLayout& layout) {
  Rendezvous rendezvous(options, "parts");
  HostBackends backends;
  try {
    auto flat = std::make_unique<network::NetworkBackend>(options, network::Tuning{});
    backends.link = flat->link_name();
    backends.flat = std::move(flat);
    backends.local = shm::make_shm_backend(options_inside(options, layout));
    if (layout.is_even() || layout.local_rank(options.rank) == 0) {
      backends.cross = network::make_network_backend(options_across(options, layout));
    }
  } catch (const CommError&) {
    rendezvous.throw_if_rank_ended();  // the cause may be a rank that is not part of the failed backend
    throw;
  }
  rendezvous.finish();
  return std::make_unique<HierarchicalBackend>(options, layout, std::move(backends));
}

}  // namespace

std::unique_ptr<Backend> make_backend(const ProcessGroupOptions& options) {
  const HostLayout layout = find_hosts(options);
  const std::string kind = cpu_backend(options);
  const bool wants_mpi = kind == "mpi" || (kind == "auto" && layout.num_hosts() > 1);  // on one host shm is faster
  if (make_mpi_backend != nullptr && wants_mpi && options.world_size > 1 && !options.thread_ranks) {
    const auto make_flat = [&] {
      return layout.num_hosts() == 1 ? shm::make_shm_backend(options) : network::make_network_backend(options);
    };
    if (auto backend = make_mpi_backend(options, make_flat)) return backend;
  }
  if (layout.num_hosts() == 1 && kind != "gloo") return shm::make_shm_backend(options);
  if (kind == "shm") fail_for_hosts(options, layout);
  const bool is_flat = layout.num_hosts() == 1 || layout.num_hosts() == options.world_size;
  return is_flat ? network::make_network_backend(options) : make_hierarchical_backend(options, layout);
}

}}}  // namespace tandem::v0::distributed
