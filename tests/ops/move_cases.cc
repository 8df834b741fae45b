#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

std::vector<Placed> placed(const std::vector<Tensor>& tensors, const std::vector<Device>& devices) {
  std::vector<Placed> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back({tensors[i], devices.at(i)});
  return result;
}

/// 16 MiB on a device; declares cpu:1 if necessary.
Tensor large_on(int device) {
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  return randn({2048, 2048}).to(Device(DeviceType::kCPU, device));
}

TensorList one_elsewhere() { return {large_on(1)}; }
TensorList one_on_each() { return {large_on(0), large_on(1)}; }

}  // namespace

TANDEM_OP_CASES(move) {
  const Device first(test_device().type, 1), second(test_device().type, 2), third(test_device().type, 3);
  const TransferOptions small = {.chunk_bytes = 16};
  const std::vector<std::pair<Shape, int>> one = {{{5, 3}, 1}}, three = {{{5, 3}, 1}, {{5, 3}, 2}, {{5, 3}, 3}};
  cases.crossing("Tensor to(const Tensor& input, Device device)",
                 {one, [=](const Tensors& x) { return placed({to(x[0], second)}, {second}); }});
  cases.crossing("Future<Tensor> to_async(const Tensor& input, Device device, const TransferOptions& options = {})",
                 {one, [=](const Tensors& x) { return placed({to_async(x[0], second, small).get()}, {second}); }});
  cases.crossing(
      "std::vector<Tensor> gather_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options "
      "= {})",
      {three, [=](const Tensors& x) {
         return placed(gather_to(second, x, small), {second, second, second});
       }});
  cases.crossing(
      "Tensor comm::sum_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options = {})",
      {three, [=](const Tensors& x) { return placed({comm::sum_to(second, x, small)}, {second}); }});
  cases.crossing(
      "std::vector<Tensor> comm::all_reduce(const std::vector<Tensor>& tensors, const TransferOptions& options = {})",
      {three, [=](const Tensors& x) {
         return placed(comm::all_reduce(x, small), {first, second, third});
       }});
  cases.crossing(
      "std::vector<Tensor> comm::broadcast(const Tensor& tensor, const std::vector<Device>& devices, const "
      "TransferOptions& options = {})",
      {one, [=](const Tensors& x) {
         return placed(comm::broadcast(x[0], {third, first, second}, small), {third, first, second});
       }});
  cases.crossing(
      "std::vector<Tensor> comm::scatter(const Tensor& tensor, const std::vector<Device>& devices, int64_t dim = 0, "
      "const TransferOptions& options = {})",
      {one, [=](const Tensors& x) {
         return placed(comm::scatter(x[0], {third, first, second}, 0, small), {third, first, second});
       }});
  cases.crossing(
      "Tensor comm::gather(const std::vector<Tensor>& tensors, int64_t dim, Device device, const TransferOptions& "
      "options = {})",
      {three, [=](const Tensors& x) { return placed({comm::gather(x, 1, second, small)}, {second}); }});
  cases.crossing(
      "std::vector<Tensor> comm::all_gather(const std::vector<Tensor>& tensors, int64_t dim = 0, const "
      "TransferOptions& options = {})",
      {three, [=](const Tensors& x) {
         return placed(comm::all_gather(x, 1, small), {first, second, third});
       }});
  cases.crossing(
      "Tensor addmm_split(const Tensor& input, const std::vector<Tensor>& mat1, const std::vector<Tensor>& mat2, "
      "SplitDim split, Device device, Scalar beta = 1, Scalar alpha = 1)",
      {{{{4}, 3}, {{5, 2}, 1}, {{5, 3}, 2}, {{2, 4}, 1}, {{3, 4}, 2}}, [=](const Tensors& x) {
         return placed({addmm_split(x[0], {x[1], x[2]}, {x[3], x[4]}, SplitDim::kInner, third)}, {third});
       }});

  const Device here;
  const std::vector<Device> both = {here, Device(DeviceType::kCPU, 1)};
  cases.benchmark("to device", one_elsewhere, [=](const TensorList& in) { return to(in[0], here); });
  cases.benchmark("to_async", one_elsewhere, [=](const TensorList& in) { return to_async(in[0], here).get(); });
  cases.benchmark("gather_to", one_on_each, [=](const TensorList& in) { return gather_to(here, {in[0], in[1]})[1]; });
  cases.benchmark("sum_to", one_on_each, [=](const TensorList& in) { return comm::sum_to(here, {in[0], in[1]}); });
  cases.benchmark("all_reduce", one_on_each, [](const TensorList& in) { return comm::all_reduce({in[0], in[1]})[0]; });
  cases.benchmark("broadcast", one_elsewhere, [=](const TensorList& in) { return comm::broadcast(in[0], both)[0]; });
  cases.benchmark("scatter", one_elsewhere, [=](const TensorList& in) { return comm::scatter(in[0], both)[0]; });
  cases.benchmark("gather", one_on_each, [=](const TensorList& in) { return comm::gather({in[0], in[1]}, 0, here); });
  cases.benchmark("all_gather", one_on_each, [](const TensorList& in) { return comm::all_gather({in[0], in[1]})[0]; });
  cases.benchmark(
      "addmm_split",
      [] {
        return TensorList{large_on(0), large_on(1), large_on(0), large_on(1)};
      },
      [=](const TensorList& in) {
        return addmm_split(zeros({2048}), {in[0], in[1]}, {in[2], in[3]}, SplitDim::kInner, here);
      },
      {.flops = 2 * 2.0 * 2048 * 2048 * 2048});
}

}  // namespace tandem::testing
