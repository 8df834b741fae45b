// Devices of ranks that are threads, in tests that run on CPUs and on GPUs.
#pragma once

#include <vector>

#include <tandem/tests/support/op_case.h>

namespace tandem::testing {

/// The CPU for all ranks, or GPU i for rank i if TANDEM_TEST_DEVICE is cuda.
inline std::vector<Device> rank_devices(int n) {
  const bool on_gpus = !test_device().is_cpu();
  std::vector<Device> devices;
  for (int rank = 0; rank < n; ++rank) devices.push_back(on_gpus ? Device::cuda(rank) : Device());
  return devices;
}

}  // namespace tandem::testing
