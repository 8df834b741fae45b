// input + mat1 @ mat2 with operands on different devices: an error, explicit moves, and a product split over the
// devices.
//
//     ./bazelw run //examples/addmm_devices
//     ./bazelw run //examples/addmm_devices -- --num-devices 2 --size 2000
#include <tandem/examples/support/demo.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace td = tandem;

namespace {

using Tensors = std::vector<td::Tensor>;
using Devices = std::vector<td::Device>;

struct Operands {
  td::Tensor input, mat1, mat2;
};

/// Inputs of addmm_split: element i of both is on devices[i].
struct SplitOperands {
  Tensors mat1, mat2;
};

SplitOperands split(const td::Tensor& mat1, const td::Tensor& mat2, td::SplitDim dim, const Devices& devices) {
  switch (dim) {
    case td::SplitDim::kRows: return {td::comm::scatter(mat1, devices, 0), td::comm::broadcast(mat2, devices)};
    case td::SplitDim::kColumns: return {td::comm::broadcast(mat1, devices), td::comm::scatter(mat2, devices, 1)};
    case td::SplitDim::kInner: return {td::comm::scatter(mat1, devices, 1), td::comm::scatter(mat2, devices, 0)};
  }
  return {};
}

constexpr std::pair<const char*, td::SplitDim> kSplits[] = {
    {"kRows", td::SplitDim::kRows}, {"kColumns", td::SplitDim::kColumns}, {"kInner", td::SplitDim::kInner}};

/// Bound of the difference between float32 sums in different orders, for sums as large as the elements of `x`.
double rounding_error(const td::Tensor& x) {
  return 16 * std::numeric_limits<float>::epsilon() * examples::largest_difference(x, td::zeros_like(x));
}

double num_flops(const Operands& operands) {
  return 2 * static_cast<double>(operands.mat1.numel()) * static_cast<double>(operands.mat2.size(1));
}

/// Operands on two devices: an error, then explicit moves. The tensors of `all` are on one device.
void show_moves(examples::Demo& demo, const Operands& all, td::Device first, td::Device second,
                const td::Tensor& result, double tolerance) {
  const td::Tensor input = all.input.to(first), mat1 = all.mat1.to(first), mat2 = all.mat2.to(second);
  demo.heading(
      td::str("input and mat1 are on ", first, ", mat2 is on ", second, "; tensors are never moved implicitly"));
  demo.throws<td::DeviceError>("td::addmm(input, mat1, mat2)  // throws DeviceError",
                               [&] { td::addmm(input, mat1, mat2); });
  examples::MethodTable table(demo, num_flops(all), "GFLOP/s");
  table.row(
      td::str("td::addmm(input, mat1, mat2.to(", first, "))"), first,
      [&] { return Tensors{td::addmm(input, mat1, mat2.to(first))}; }, {result}, tolerance);
  table.row(
      td::str("td::addmm(input.to(", second, "), mat1.to(", second, "), mat2)"), second,
      [&] { return Tensors{td::addmm(input.to(second), mat1.to(second), mat2)}; }, {result}, tolerance);
}

/// Operands split over the devices: only partial products are moved.
void show_splits(examples::Demo& demo, const Operands& all, const Devices& devices, const td::Tensor& result,
                 double tolerance) {
  const td::Device target = all.input.device();
  demo.heading(td::str("td::addmm_split(input, parts of mat1, parts of mat2, split, ", target,
                       "): each device multiplies its parts"));
  examples::MethodTable table(demo, num_flops(all), "GFLOP/s");
  table.row(
      "td::addmm on one device", target, [&] { return Tensors{td::addmm(all.input, all.mat1, all.mat2)}; }, {result},
      tolerance);
  std::vector<size_t> counts = {2};
  if (devices.size() > 2) counts.push_back(devices.size());
  for (const size_t count : counts) {
    const Devices subset(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(count));
    for (const auto& [name, dim] : kSplits) {
      const auto [mat1, mat2] = split(all.mat1, all.mat2, dim, subset);
      table.row(
          td::str(name, " over ", count, " devices"), target,
          [&] { return Tensors{td::addmm_split(all.input, mat1, mat2, dim, target)}; }, {result}, tolerance);
    }
  }
}

/// Gradients through the split product and through the copies that split the operands.
void show_gradients(examples::Demo& demo, const Operands& all, const Devices& devices) {
  const auto gradients = [&](const std::function<td::Tensor(const Operands&)>& product) {
    Operands leaves = {all.input.clone(), all.mat1.clone(), all.mat2.clone()};
    for (td::Tensor* leaf : {&leaves.input, &leaves.mat1, &leaves.mat2}) leaf->requires_grad_();
    product(leaves).backward(all.input);  // an arbitrary output gradient
    return Tensors{leaves.input.grad(), leaves.mat1.grad(), leaves.mat2.grad()};
  };
  const Tensors expected = gradients([](const Operands& x) { return td::addmm(x.input, x.mat1, x.mat2); });
  demo.heading("split(mat1, mat2), td::addmm_split(..).backward(gradient): gradients of the unsplit leaves");
  for (const auto& [name, dim] : kSplits) {
    const Tensors parts = gradients([&, split_dim = dim](const Operands& x) {
      const auto [mat1, mat2] = split(x.mat1, x.mat2, split_dim, devices);
      return td::addmm_split(x.input, mat1, mat2, split_dim, x.input.device());
    });
    bool is_equal = true;
    for (size_t i = 0; i < expected.size(); ++i)
      is_equal = is_equal && examples::largest_difference(parts[i], expected[i]) <= rounding_error(expected[i]);
    demo.check(td::str(name, ": gradients of input, mat1 and mat2 equal addmm's"), is_equal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  examples::DeviceFlags flags;
  int64_t size = 1000;
  const int status = examples::parse_device_flags(
      argc, argv,
      "input + mat1 @ mat2 with operands on different devices: an error, explicit moves, and a product split over the "
      "devices.",
      {{.name = "--size", .help = "rows and columns of the matrices", .value = &size, .min = 1, .max = 65536}}, flags);
  if (status >= 0) return status;

  return examples::run_demo([&](examples::Demo& demo) {
    const Devices devices = examples::declare_devices(flags);
    const td::TensorOptions options = {td::kFloat32, devices[0]};
    const Operands all = {td::randn({size, size}, options), td::randn({size, size}, options),
                          td::randn({size, size}, options)};
    const auto wide = [](const td::Tensor& x) { return x.to(td::kFloat64); };
    const td::Tensor exact = td::addmm(wide(all.input), wide(all.mat1), wide(all.mat2)).to(td::kFloat32);
    const double tolerance = rounding_error(exact);
    show_moves(demo, all, devices[0], devices[1], exact, tolerance);
    if (devices.size() > 2) show_moves(demo, all, devices[1], devices[2], exact, tolerance);
    show_splits(demo, all, devices, td::addmm(all.input, all.mat1, all.mat2), tolerance);
    show_gradients(demo, all, devices);
  });
}
