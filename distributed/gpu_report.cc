#include <tandem/distributed/gpu_report.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::distributed {

namespace {

constexpr size_t kCardBytes = 128;

}  // namespace

Tensor gpu_card(Device device) {
  const cuda::Versions versions = cuda::versions();
  std::string text =
      str(cuda::device_properties(device).name, ", CUDA ", versions.runtime, ", driver for ", versions.driver);
  text.resize(kCardBytes - 1);  // a zero behind it
  const Tensor card = zeros({static_cast<int64_t>(kCardBytes)}, {kUInt8});
  std::copy(text.begin(), text.end(), card.data<uint8_t>());
  return card;
}

std::string describe_gpus(const Tensor& cards, const std::string& cpu_backend, const std::string& nccl_version) {
  const int64_t ranks = cards.shape()[0];
  std::vector<std::pair<std::string, int>> kinds;  // in the order of ranks
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string card = reinterpret_cast<const char*>(cards.data<uint8_t>() + rank * cards.shape()[1]);
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == card; });
    if (known != kinds.end()) {
      ++known->second;
    } else {
      kinds.emplace_back(card, 1);
    }
  }
  std::string gpus;
  for (const auto& [card, count] : kinds) gpus += str(gpus.empty() ? "" : " and ", count, " x ", card);
  return str(ranks, ranks == 1 ? " rank, " : " ranks, ", cpu_backend, "; nccl ", nccl_version, " between ", gpus);
}

}  // namespace tandem::inline v0::distributed
