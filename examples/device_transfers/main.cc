// Moves tensors of several devices to one device: blocking, asynchronous, in chunks, too large, and with a suggested
// target.
//
//     ./bazelw run //examples/device_transfers
//     ./bazelw run //examples/device_transfers -- --mib 1024 --chunk-mib 8 --in-flight 4 --trace transfers.json
#include <tandem/examples/device_transfers/transfers.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

constexpr int64_t kRowBytes = 4096;

td::Tensor random_tensor(int64_t num_bytes, td::Device device) {
  return td::rand({std::max<int64_t>(1, num_bytes / kRowBytes), kRowBytes / 4}, {td::kFloat32, device});
}

/// Eight tensors, distributed round-robin over all devices except the first.
std::vector<td::Tensor> tensors_elsewhere(int64_t num_bytes, const std::vector<td::Device>& devices) {
  constexpr size_t kTensors = 8;
  std::vector<td::Tensor> tensors;
  for (size_t i = 0; i < kTensors; ++i) {
    tensors.push_back(random_tensor(num_bytes / static_cast<int64_t>(kTensors), devices[1 + i % (devices.size() - 1)]));
  }
  return tensors;
}

/// One tensor on each device, each larger than the one before.
std::vector<td::Tensor> tensors_everywhere(int64_t num_bytes, const std::vector<td::Device>& devices) {
  const auto n = static_cast<int64_t>(devices.size());
  std::vector<td::Tensor> tensors;
  for (const td::Device device : devices) {
    const auto share = static_cast<int64_t>(tensors.size()) + 1;
    tensors.push_back(random_tensor(num_bytes * share / (n * (n + 1) / 2), device));
  }
  return tensors;
}

}  // namespace

int main(int argc, char** argv) {
  examples::DeviceFlags flags;
  int64_t mib = 256;
  int64_t chunk_mib = 4;
  int64_t in_flight = 2;
  std::string trace;
  const int status = examples::parse_device_flags(
      argc, argv, "Moves tensors of several devices to one device: methods, times and memory.",
      {{.name = "--mib", .help = "total size of the moved tensors", .value = &mib, .min = 1, .max = 65536},
       {.name = "--chunk-mib", .help = "maximum size of a chunk", .value = &chunk_mib, .min = 1, .max = 65536},
       {.name = "--in-flight", .help = "chunks in flight at a time", .value = &in_flight, .min = 1, .max = 64},
       {.name = "--trace",
        .help = "write a trace of moves during matrix products, for ui.perfetto.dev",
        .value = &trace}},
      flags);
  if (status >= 0) return status;

  return examples::run_demo([&](examples::Demo& demo) {
    const std::vector<td::Device> devices = examples::declare_devices(flags);
    const td::Device target = devices.front();
    const td::TransferOptions options{.chunk_bytes = chunk_mib << 20, .max_in_flight = static_cast<int>(in_flight)};
    {
      const std::vector<td::Tensor> tensors = tensors_elsewhere(mib << 20, devices);
      examples::show_many(demo, tensors, target, options);
      examples::show_overlap(demo, tensors, target, devices.back(), options, trace);
      examples::show_then(demo, tensors, target, options);
    }
    {
      const td::Tensor x = random_tensor(mib << 20, devices.back());
      examples::show_chunks(demo, x, target, options);
      examples::show_strided(demo, x, target, options);
      examples::show_large_times(demo, x, target, options);
      examples::show_cancel(demo, x, target, options);
      examples::show_too_large(demo, x, target);
    }
    examples::show_choice(demo, tensors_everywhere(mib << 20, devices), devices);
  });
}
