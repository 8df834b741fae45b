// Sums of tensors on different devices by several methods: first of three elements, then of large tensors.
//
//     ./bazelw run //examples/device_sums
//     ./bazelw run //examples/device_sums -- --num-devices 2 --mib 256 --dtype bfloat16
#include <tandem/examples/support/demo.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

using td::distributed::ProcessGroup;
using Tensors = std::vector<td::Tensor>;

td::Tensor gather_then_add(const Tensors& tensors, td::Device target) {
  const Tensors gathered = td::gather_to(target, tensors);
  const td::Tensor sum = gathered[0] + gathered[1];
  for (size_t i = 2; i < gathered.size(); ++i) sum.add_(gathered[i]);
  return sum;
}

td::Tensor move_and_add_each(const Tensors& tensors, td::Device target) {
  const td::Tensor sum = td::zeros(tensors[0].shape(), {tensors[0].dtype(), target});
  for (const td::Tensor& tensor : tensors) sum.add_(tensor.to(target));
  return sum;
}

/// Runs one thread rank on the device of each tensor; every rank calls f with its tensor. Returns the results.
Tensors on_ranks(const Tensors& tensors, const std::function<td::Tensor(ProcessGroup& group, const td::Tensor& x)>& f) {
  std::vector<td::Device> devices;
  for (const td::Tensor& tensor : tensors) devices.push_back(tensor.device());
  Tensors results(tensors.size());
  td::distributed::run_threads(devices, [&](td::distributed::Context& ctx) {
    const auto rank = static_cast<size_t>(ctx.rank());
    results[rank] = f(*ctx.group(), tensors[rank]);
  });
  return results;
}

td::Tensor all_gather_then_add(ProcessGroup& group, const td::Tensor& x) {
  Tensors parts;
  for (int r = 0; r < group.size(); ++r) parts.push_back(td::empty_like(x));
  group.all_gather(parts, x);
  for (size_t i = 1; i < parts.size(); ++i) parts[0].add_(parts[i]);
  return parts[0];
}

td::Tensor all_reduce(ProcessGroup& group, const td::Tensor& x) {
  const td::Tensor sum = x.clone();  // all_reduce is in place
  group.all_reduce(sum);
  return sum;
}

void show_small(examples::Demo& demo, td::Device first, td::Device second) {
  const td::Tensor a = td::tensor({1, 2, 3}).to(first);
  const td::Tensor b = td::tensor({4, 5, 6}).to(second);
  const std::vector<double> sum = {5, 7, 9};
  demo.heading(
      td::str("a = [1 2 3] is on ", first, ", b = [4 5 6] is on ", second, "; tensors are never moved implicitly"));
  demo.throws<td::DeviceError>("a + b  // throws DeviceError", [&] { static_cast<void>(a + b); });

  demo.heading("move one tensor to the other's device");
  demo.returns("a + b.to(a.device())", {a + b.to(a.device())}, sum);
  demo.returns("a.to(b.device()) + b", {a.to(b.device()) + b}, sum);
  demo.returns("a.cpu() + b.cpu()", {a.cpu() + b.cpu()}, sum);

  demo.heading("choose the device of the sum");
  demo.returns(td::str("comm::sum_to(", second, ", {a, b})"), {td::comm::sum_to(second, {a, b})}, sum);
  demo.returns("comm::all_reduce({a, b})", td::comm::all_reduce({a, b}), sum);

  demo.heading("one thread rank per device, as in data-parallel training: run_threads({a.device(), b.device()}, f)");
  demo.returns("f: group.all_gather(parts, x);  parts[0] + parts[1]", on_ranks({a, b}, all_gather_then_add), sum);
  demo.returns("f: group.all_reduce(x)", on_ranks({a, b}, all_reduce), sum);
}

/// The sum on one device, computed in float32 and rounded once.
td::Tensor sum_on_one_device(const Tensors& tensors, td::Device device) {
  const td::Tensor sum = td::zeros(tensors[0].shape(), {td::kFloat32, device});
  for (const td::Tensor& tensor : tensors) sum.add_(tensor.to(device).to(td::kFloat32));
  return sum.to(tensors[0].dtype());
}

void show_large(examples::Demo& demo, const Tensors& tensors, const td::Tensor& sum) {
  const td::Device target = tensors[0].device();
  const auto n = static_cast<double>(tensors.size());
  demo.heading(td::str(tensors.size(), " tensors ", sum.dtype(), " of ", td::format_bytes(sum.num_bytes()),
                       ", one on each device; GB/s of input bytes"));
  double rounding = 0;  // bound of the rounding error: all sums are below n
  if (sum.dtype() != td::kFloat32) {
    rounding = n * n * (sum.dtype() == td::kFloat16 ? 0x1p-11 : 0x1p-8);
    demo.text(td::str("adding one by one rounds to ", sum.dtype(),
                      " after every addition; the other methods round once, from float32"));
  }
  examples::MethodTable table(demo, n * static_cast<double>(sum.num_bytes()), "GB/s");
  const auto row = [&](const std::string& method, double tolerance, const std::function<Tensors()>& f) {
    table.row(method, target, f, {sum}, tolerance);
  };
  row("gather_to(target, tensors), then add", rounding, [&] { return Tensors{gather_then_add(tensors, target)}; });
  row("sum.add_(tensor.to(target)) of each", rounding, [&] { return Tensors{move_and_add_each(tensors, target)}; });
  row("comm::sum_to(target, tensors)", 0, [&] { return Tensors{td::comm::sum_to(target, tensors)}; });
  row("comm::all_reduce(tensors)", 0, [&] { return td::comm::all_reduce(tensors); });
  row("run_threads, group.all_gather, then add", rounding, [&] { return on_ranks(tensors, all_gather_then_add); });
  // NCCL adds in the tensors' dtype, in an unspecified order.
  const double nccl_rounding = target.is_cpu() ? 0 : std::max(rounding, n * n * 0x1p-24);
  row("run_threads, group.all_reduce", nccl_rounding, [&] { return on_ranks(tensors, all_reduce); });
}

void show_too_large(examples::Demo& demo, const Tensors& tensors, const td::Tensor& sum) {
  const td::Device target = tensors[0].device();
  const int64_t bytes = td::block_bytes(sum.num_bytes());
  const auto sum_to = [&] { return td::comm::sum_to(target, tensors); };
  demo.heading(td::str(target, " has memory for the sum (", td::format_bytes(bytes), "), but not for the operands"));
  td::Tensor streamed;
  {
    const examples::MemoryLimit limit(target, bytes);
    demo.throws<td::OutOfMemory>("gather_to(target, tensors), then add  // throws OutOfMemory",
                                 [&] { gather_then_add(tensors, target); });
    const examples::PeakMemory peak(target);
    streamed = sum_to();
    demo.code("comm::sum_to(target, tensors)  // adds chunk by chunk");
    demo.check(td::str("peak memory on ", target, " ", td::format_bytes(peak.bytes())), peak.bytes() == bytes);
  }
  demo.check("the sum is correct", examples::largest_difference(streamed, sum) == 0);

  demo.heading(td::str(target, " has memory for half of the sum"));
  const examples::MemoryLimit limit(target, bytes / 2);
  std::vector<examples::PeakMemory> peaks;
  for (const td::Tensor& tensor : tensors) peaks.emplace_back(tensor.device());
  demo.throws<td::OutOfMemory>("comm::sum_to(target, tensors)  // throws OutOfMemory", sum_to);
  demo.check("no device allocated memory",
             std::all_of(peaks.begin(), peaks.end(), [](const auto& peak) { return peak.bytes() == 0; }));
}

}  // namespace

int main(int argc, char** argv) {
  examples::DeviceFlags flags;
  int64_t mib = 64;
  std::string dtype = "float32";
  const int status = examples::parse_device_flags(
      argc, argv, "Sums of tensors on different devices by several methods.",
      {{.name = "--mib", .help = "size of each large tensor", .value = &mib, .min = 1, .max = 65536},
       {.name = "--dtype",
        .help = "dtype of the large tensors",
        .value = &dtype,
        .choices = {"float32", "float16", "bfloat16"}}},
      flags);
  if (status >= 0) return status;

  return examples::run_demo([&](examples::Demo& demo) {
    const std::vector<td::Device> devices = examples::declare_devices(flags);
    show_small(demo, devices[0], devices[1]);

    const td::DType type = dtype == "float32" ? td::kFloat32 : dtype == "float16" ? td::kFloat16 : td::kBFloat16;
    const td::Shape shape = {(mib << 20) / td::size_of(type)};
    Tensors tensors;
    // Their sums are exact in float32, so all orders of addition give the same bits.
    const td::DType few_digits = type == td::kFloat32 ? td::kFloat16 : type;
    for (const td::Device device : devices) tensors.push_back(td::rand(shape, {few_digits, device}).to(type));
    const td::Tensor sum = sum_on_one_device(tensors, devices[1]);
    show_large(demo, tensors, sum);
    show_too_large(demo, tensors, sum);
  });
}
