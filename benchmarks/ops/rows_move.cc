#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

/// 16 MiB on a device; the one of cpu:1 is declared where it is not.
Tensor large_on(int device) {
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  return randn({2048, 2048}).to(Device(DeviceType::kCpu, device));
}

TensorList one_elsewhere() { return {large_on(1)}; }
TensorList one_on_each() { return {large_on(0), large_on(1)}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(move) {
  const Device here;
  const std::vector<Device> both = {here, Device(DeviceType::kCpu, 1)};
  rows.add("to device", one_elsewhere, [=](const TensorList& in) { return to(in[0], here); });
  rows.add("to_async", one_elsewhere, [=](const TensorList& in) { return to_async(in[0], here).get(); });
  rows.add("gather_to", one_on_each, [=](const TensorList& in) { return gather_to(here, {in[0], in[1]})[1]; });
  rows.add("sum_to", one_on_each, [=](const TensorList& in) { return comm::sum_to(here, {in[0], in[1]}); });
  rows.add("all_reduce", one_on_each, [](const TensorList& in) { return comm::all_reduce({in[0], in[1]})[0]; });
  rows.add("broadcast", one_elsewhere, [=](const TensorList& in) { return comm::broadcast(in[0], both)[0]; });
  rows.add("scatter", one_elsewhere, [=](const TensorList& in) { return comm::scatter(in[0], both)[0]; });
  rows.add("gather", one_on_each, [=](const TensorList& in) { return comm::gather({in[0], in[1]}, 0, here); });
  rows.add("all_gather", one_on_each, [](const TensorList& in) { return comm::all_gather({in[0], in[1]})[0]; });
  rows.add(
      "addmm_split",
      [] {
        return TensorList{large_on(0), large_on(1), large_on(0), large_on(1)};
      },
      [=](const TensorList& in) {
        return addmm_split(zeros({2048}), {in[0], in[1]}, {in[2], in[3]}, SplitDim::kInner, here);
      },
      {.flops = 2 * 2.0 * 2048 * 2048 * 2048});
}
