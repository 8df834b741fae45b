#include <tandem/distributed/group/gpu_report.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr size_t kGpuInfoBytes = 512;
constexpr size_t kIdentityAt = 128;

const char* gpu_info_of(const Tensor& infos, int64_t rank) {
  return reinterpret_cast<const char*>(infos.data<uint8_t>() + rank * infos.shape()[1]);
}

/// The identity of this host as NCCL computes it.
std::string nccl_host(const std::string& name) {
  if (const auto id = env_string("NCCL_HOSTID")) return *id;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return str(name, " ", boot);
}

}  // namespace

std::string gpu_identity(Device device) {
  char host[128] = "";
  gethostname(host, sizeof(host) - 1);
  return str(cuda::device_properties(device).uuid, " of ", host, "\n", nccl_host(host));
}

Tensor pack_gpu_info(Device device) {
  const cuda::Versions versions = cuda::versions();
  std::string text =
      str(cuda::device_properties(device).name, ", CUDA ", versions.runtime, ", driver for ", versions.driver);
  text.resize(kIdentityAt - 1);  // leaves a terminating zero
  std::string identity = gpu_identity(device);
  identity.resize(kGpuInfoBytes - kIdentityAt - 1);
  const Tensor info = zeros({static_cast<int64_t>(kGpuInfoBytes)}, {kUInt8});
  std::copy(text.begin(), text.end(), info.data<uint8_t>());
  std::copy(identity.begin(), identity.end(), info.data<uint8_t>() + kIdentityAt);
  return info;
}

std::string find_shared_gpu(const Tensor& infos, const std::vector<int>& ranks) {
  std::map<std::string, int64_t> owners;
  for (int64_t rank = 0; rank < infos.shape()[0]; ++rank) {
    const std::string identity = gpu_info_of(infos, rank) + kIdentityAt;
    const auto [owner, is_first] = owners.emplace(identity, rank);
    if (is_first) continue;
    const std::string kind = gpu_info_of(infos, rank);
    return str("ranks ", ranks[static_cast<size_t>(owner->second)], " and ", ranks[static_cast<size_t>(rank)],
               " are both on ", kind.substr(0, kind.find(',')), " ", identity.substr(0, identity.find('\n')));
  }
  return "";
}

std::string describe_gpus(const Tensor& infos, const std::string& cpu_backend, const std::string& nccl_version) {
  const int64_t ranks = infos.shape()[0];
  std::vector<std::pair<std::string, int>> kinds;  // in the order of ranks
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string info = gpu_info_of(infos, rank);
    auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == info; });
    if (known == kinds.end()) known = kinds.emplace(kinds.end(), info, 0);
    ++known->second;
  }
  std::string gpus;
  for (const auto& [info, count] : kinds) gpus += str(gpus.empty() ? "" : " and ", count, " x ", info);
  return str(ranks, ranks == 1 ? " rank, " : " ranks, ", cpu_backend, "; nccl ", nccl_version, " between ", gpus);
}

}}}  // namespace tandem::v0::distributed
