#include <tandem/tests/support/op_case.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/autograd/gradcheck.h>
#include <tandem/base/env.h>
#include <tandem/base/parallel_for.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/full.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem::testing {

namespace {

std::string layout_name(Layout layout) {
  switch (layout) {
    case Layout::kContiguous: return "contiguous";
    case Layout::kTransposed: return "transposed";
    case Layout::kSliced: return "sliced";
    case Layout::kExpanded: return "expanded";
  }
  return "";
}

/// The layouts of the inputs of each run: all inputs in one layout, or mixed.
std::vector<std::vector<Layout>> layout_plans(size_t num_inputs) {
  std::vector<std::vector<Layout>> plans;
  for (Layout layout : kLayouts) plans.emplace_back(num_inputs, layout);
  for (size_t shift = 1; num_inputs > 1 && shift < 3; ++shift) {
    std::vector<Layout> mixed;
    for (size_t i = 0; i < num_inputs; ++i) mixed.push_back(kLayouts[(i + shift) % std::size(kLayouts)]);
    plans.push_back(std::move(mixed));
  }
  return plans;
}

std::string plan_name(const std::vector<Layout>& plan) {
  std::string text;
  for (Layout layout : plan) text += str(" ", layout_name(layout));
  return text;
}

DType dtype_of_input(const Input& input, DType dtype) { return input.dtype.value_or(dtype); }

bool collects_gradient(const Input& input) { return !input.dtype && input.differentiable; }

/// The inputs, each in the layout of the plan.
Tensors make_inputs(const OpCase& op, DType dtype, const std::vector<Layout>& plan, Device device = test_device()) {
  Tensors tensors;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Input& input = op.inputs[i];
    Dense values = random_dense(input.shape, 100 + i, input.low, input.high);
    if (!is_floating_point(dtype_of_input(input, dtype))) {
      for (double& value : values.values) value = std::floor(value);
    }
    tensors.push_back(make_tensor(values, dtype_of_input(input, dtype), plan[i], device));
  }
  return tensors;
}

std::vector<std::byte> storage_bytes(const Tensor& tensor) {
  const int64_t num_bytes = tensor.storage()->num_bytes();
  const std::vector<uint8_t> bytes = make_view(tensor.storage(), kUInt8, {num_bytes}, {1}, 0).to_vector<uint8_t>();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + num_bytes};
}

double tolerance_of(const OpCase& op, DType dtype) { return op.tolerance * epsilon(dtype) * std::sqrt(op.terms); }

/// Detached copies of the handles, which collect gradients if the case says so; converted to another dtype if
/// requested.
std::vector<Tensor> as_leaves(const OpCase& op, const std::vector<Tensor>& tensors, std::optional<DType> dtype = {}) {
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Input& input = op.inputs[i];
    Tensor leaf = tensors[i].detach();
    if (dtype && !input.dtype) leaf = make_tensor(dense(leaf), *dtype, Layout::kContiguous, leaf.device());
    if (collects_gradient(input)) leaf.requires_grad_();
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

/// The gradients of <cotangent, run(leaves)>, undefined for inputs that collect none.
std::vector<Tensor> gradients(const OpCase& op, const std::vector<Tensor>& leaves, const Dense& cotangent) {
  const Tensor out = op.run(leaves);
  std::vector<Tensor> wanted;
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  const Tensor outputs[] = {out};
  const Tensor cotangents[] = {make_tensor(cotangent, out.dtype(), Layout::kContiguous, out.device())};
  return grad(outputs, wanted, cotangents);
}

}  // namespace

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && primitives::bytes_equal(a, b);
}

Device test_device() {
  static const Device device(env_string("TANDEM_TEST_DEVICE").value_or("cpu"));
  return device;
}

std::vector<DType> floating_dtypes() { return {kFloat64, kFloat32, kFloat16, kBFloat16}; }

double epsilon(DType dtype) {
  switch (dtype) {
    case kFloat16: return 0x1p-10;
    case kBFloat16: return 0x1p-7;
    case kFloat32: return 0x1p-23;
    case kFloat64: return 0x1p-52;
    default: return 0;
  }
}

Dense dense_zeros(const Shape& shape) { return {shape, std::vector<double>(static_cast<size_t>(num_elements(shape)))}; }

Dense dense(const Tensor& tensor) { return {tensor.shape(), tensor.to_vector<double>()}; }

namespace {

/// The position in a tensor of shape `sizes` of element i of its broadcast to `shape`.
int64_t broadcast_position(int64_t i, const Shape& shape, const Shape& sizes) {
  const Shape strides = row_major_strides(sizes);
  const size_t skip = shape.size() - sizes.size();
  int64_t position = 0;
  for (size_t d = shape.size(); d-- > skip; i /= shape[d]) {
    if (sizes[d - skip] != 1) position += i % shape[d] * strides[d - skip];
  }
  return position;
}

}  // namespace

Dense dense_map(const Shape& shape, const std::vector<Dense>& inputs,
                const std::function<double(const std::vector<double>&)>& f) {
  Dense result = dense_zeros(shape);
  std::vector<double> arguments(inputs.size());
  for (int64_t i = 0; i < result.numel(); ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      arguments[k] = inputs[k][inputs[k].shape == shape ? i : broadcast_position(i, shape, inputs[k].shape)];
    }
    result[i] = f(arguments);
  }
  return result;
}

namespace {

Shape broadcast_shape(const std::vector<Dense>& inputs) {
  Shape shape;
  for (const Dense& input : inputs) {
    while (shape.size() < input.shape.size()) shape.insert(0, 1);
    for (size_t d = 0; d < input.shape.size(); ++d) {
      int64_t& size = shape[shape.size() - input.shape.size() + d];
      if (input.shape[d] != 1) size = input.shape[d];
    }
  }
  return shape;
}

template <class F, size_t... i>
Reference elementwise_reference(F f, std::index_sequence<i...>) {
  return [f = std::move(f)](const std::vector<Dense>& inputs) {
    return dense_map(broadcast_shape(inputs), inputs, [&](const std::vector<double>& v) { return f(v[i]...); });
  };
}

}  // namespace

Reference elementwise(std::function<double(double)> f) {
  return elementwise_reference(std::move(f), std::make_index_sequence<1>());
}
Reference elementwise(std::function<double(double, double)> f) {
  return elementwise_reference(std::move(f), std::make_index_sequence<2>());
}
Reference elementwise(std::function<double(double, double, double)> f) {
  return elementwise_reference(std::move(f), std::make_index_sequence<3>());
}

Input integers(const char* name, const Shape& shape, double end) {
  return {.name = name, .shape = shape, .low = 0, .high = end, .dtype = kInt64};
}
Input bools(const char* name, const Shape& shape) {
  return {.name = name, .shape = shape, .low = 0, .high = 2, .dtype = kBool};
}
Input positive(const char* name, const Shape& shape) { return {.name = name, .shape = shape, .low = 0.5}; }
Input optional(Input input) {
  input.optional = true;
  return input;
}
Input keeps_dtype(Input input) {
  input.autocast = false;
  return input;
}
Input constant(Input input) {
  input.differentiable = false;
  return input;
}

Reference in_float64(const OpCase& op) {
  return [op](const std::vector<Dense>& in) {
    Tensors inputs;
    for (size_t i = 0; i < in.size(); ++i) inputs.push_back(make_tensor(in[i], dtype_of_input(op.inputs[i], kFloat64)));
    return dense(op.run(inputs));
  };
}

Tensors make_inputs(const OpCase& op, DType dtype, Layout layout, Device device) {
  return make_inputs(op, dtype, std::vector<Layout>(op.inputs.size(), layout), device);
}

Dense random_dense(const Shape& shape, uint64_t seed, double low, double high) {
  Dense result = dense_zeros(shape);
  std::mt19937_64 random(seed);
  for (double& value : result.values) value = low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  return result;
}

Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype, double low, double high) {
  return make_tensor(random_dense(shape, seed, low, high), dtype);
}

Tensor make_tensor(const Dense& values, DType dtype, Layout layout, Device device) {
  const NoGradGuard no_grad;
  const Tensor row_major = from_vector<double>(values.values, values.shape, {dtype, device});
  const Shape& shape = values.shape;
  Shape strides = row_major_strides(shape);
  int64_t total = row_major.numel();
  int64_t offset = 0;
  switch (layout) {
    case Layout::kContiguous: return row_major;
    case Layout::kTransposed: {
      int64_t step = 1;
      for (size_t d = 0; d < shape.size(); ++d) {
        strides[d] = step;
        step *= shape[d];
      }
      break;
    }
    case Layout::kSliced: {
      // One extra element on both sides of each dimension, and every other element of the last dimension.
      total = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        const bool last = d + 1 == shape.size();
        strides[d] = total * (last ? 2 : 1);
        offset += total;
        total *= last ? 2 * shape[d] + 3 : shape[d] + 2;
      }
      break;
    }
    case Layout::kExpanded:
      if (!shape.empty()) strides[0] = 0;
      break;
  }
  const Tensor memory = empty({total}, {dtype, device});
  primitives::fill(memory, is_floating_point(dtype) ? Scalar(NAN) : Scalar(77));
  Tensor view = make_view(memory.storage(), dtype, shape, strides, offset);
  if (layout == Layout::kExpanded && !shape.empty() && shape[0] > 0) {
    Shape first = shape;
    first[0] = 1;
    const auto part = [&](const Tensor& t) { return make_view(t.storage(), dtype, first, t.strides(), 0); };
    primitives::copy(part(row_major), part(view));
  } else {
    primitives::copy(row_major, view);
  }
  return view;
}

::testing::AssertionResult close(const Tensor& actual, const Dense& expected, double tolerance) {
  if (!actual.defined()) return ::testing::AssertionFailure() << "the tensor is undefined";
  if (actual.shape() != expected.shape) {
    return ::testing::AssertionFailure() << "shape is " << actual.shape() << ", expected " << expected.shape;
  }
  const std::vector<double> values = actual.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double want = expected.values[i];
    const bool near = values[i] == want || std::abs(values[i] - want) <= tolerance * (1 + std::abs(want));
    if (!near || std::isinf(want) != std::isinf(values[i])) {
      return ::testing::AssertionFailure() << "element " << i << " of " << describe(actual) << " is " << values[i]
                                           << ", expected " << want << " within " << tolerance * (1 + std::abs(want));
    }
  }
  return ::testing::AssertionSuccess();
}

void check_values(const OpCase& op) {
  const NoGradGuard no_grad;
  for (DType dtype : op.dtypes) {
    for (const auto& plan : layout_plans(op.inputs.size())) {
      SCOPED_TRACE(str(op.name, " ", dtype, plan_name(plan)));
      const std::vector<Tensor> inputs = make_inputs(op, dtype, plan);
      std::vector<Dense> values;
      std::vector<std::vector<std::byte>> before;
      std::vector<uint32_t> versions;
      for (const Tensor& input : inputs) {
        values.push_back(dense(input));
        before.push_back(storage_bytes(input));
        versions.push_back(input.version());
      }
      const Tensor out = op.run(inputs);
      EXPECT_EQ(out.dtype(), op.result_dtype.value_or(dtype));
      EXPECT_FALSE(out.requires_grad());
      EXPECT_TRUE(close(out, op.reference(values), tolerance_of(op, dtype)));
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(storage_bytes(inputs[i]), before[i]) << op.inputs[i].name << " or the memory around it was changed";
        EXPECT_EQ(inputs[i].version(), versions[i]) << op.inputs[i].name;
      }
    }
  }
}

namespace {

/// First derivatives, with and without create_graph, and second derivatives of the operation at float64 inputs on a
/// device; zeros where a derivative is undefined.
std::vector<Tensor> derivatives(const OpCase& op, Device device) {
  const std::vector<Tensor> leaves = as_leaves(op, make_inputs(op, kFloat64, Layout::kContiguous, device));
  const Tensor out = op.run(leaves);
  if (!out.requires_grad()) return {};
  std::vector<Tensor> wanted, results;
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  const auto random_like = [](const Tensor& t) {
    return make_tensor(random_dense(t.shape(), 7, -1, 1), t.dtype(), Layout::kContiguous, t.device());
  };
  const auto append = [&](const std::vector<Tensor>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i)
      results.push_back(gradients[i].defined() ? gradients[i] : zeros_like(wanted[i]));
  };
  const Tensor cotangent = random_like(out).requires_grad_();
  append(grad({&out, 1}, wanted, {&cotangent, 1}, {.retain_graph = true}));
  if (!op.has_second_gradient) return results;
  const std::vector<Tensor> recorded = grad({&out, 1}, wanted, {&cotangent, 1}, {.create_graph = true});
  append(recorded);
  wanted.push_back(cotangent);
  for (const Tensor& gradient : recorded) {
    if (!gradient.defined() || !gradient.requires_grad()) continue;
    const Tensor weights = random_like(gradient);
    append(grad({&gradient, 1}, wanted, {&weights, 1}, {.retain_graph = true}));
  }
  return results;
}

/// Compares the derivatives on the test's device with those on the CPU.
void check_derivatives_are_those_of_cpu(const OpCase& op) {
  const std::vector<Tensor> actual = derivatives(op, test_device()), expected = derivatives(op, Device());
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(close(actual[i], dense(expected[i]), 1e-10)) << "derivative " << i;
}

}  // namespace

void check_gradients(const OpCase& op) {
  SCOPED_TRACE(op.name);
  // Numerical derivatives repeat the same kernels thousands of times: minutes with a sanitizer or emulated kernels.
  const bool is_emulated = !test_device().is_cpu() && env_string("TANDEM_EMULATED_GPUS").has_value();
  std::vector<Layout> layouts = {Layout::kContiguous, Layout::kTransposed, Layout::kSliced};
  if (!runs_all_combinations() && (kAddressSanitizer || kThreadSanitizer)) layouts = {Layout::kContiguous};
  if (!runs_all_combinations() && is_emulated) {
    check_derivatives_are_those_of_cpu(op);
    layouts.clear();
  }
  for (Layout layout : layouts) {
    SCOPED_TRACE(layout_name(layout));
    const std::vector<Layout> plan(op.inputs.size(), layout);
    const std::vector<Tensor> leaves = as_leaves(op, make_inputs(op, kFloat64, plan));
    EXPECT_NO_THROW(autograd::gradcheck(op.run, leaves)) << "gradcheck";
    if (op.has_second_gradient) {
      EXPECT_NO_THROW(autograd::gradgradcheck(op.run, leaves)) << "gradgradcheck";
    }
  }
  std::vector<std::vector<Layout>> plans = layout_plans(op.inputs.size());
  if (!runs_all_combinations() && is_emulated) plans = {plans.front(), plans.back()};
  for (DType dtype : op.dtypes) {
    if (dtype == kFloat64) continue;
    for (const auto& plan : plans) {
      SCOPED_TRACE(str(dtype, plan_name(plan)));
      const std::vector<Tensor> leaves = as_leaves(op, make_inputs(op, dtype, plan));
      const std::vector<Tensor> exact_leaves = as_leaves(op, leaves, kFloat64);
      const Tensor out = op.run(leaves);
      const Dense cotangent = dense(make_tensor(random_dense(out.shape(), 7, -1, 1), out.dtype()));
      const std::vector<Tensor> actual = gradients(op, leaves, cotangent);
      const std::vector<Tensor> exact = gradients(op, exact_leaves, cotangent);
      ASSERT_EQ(actual.size(), exact.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i].defined(), exact[i].defined()) << "gradient " << i;
        if (!actual[i].defined()) continue;
        EXPECT_EQ(actual[i].dtype(), dtype);
        // Twice the forward's tolerance: the gradient is computed from results that were rounded themselves.
        EXPECT_TRUE(close(actual[i], dense(exact[i]), 2 * tolerance_of(op, dtype))) << "gradient " << i;
      }
    }
  }
}

void check_threads(const OpCase& op) {
  SCOPED_TRACE(op.name + " on 1 and 2 threads");
  const int before = num_threads();
  const DType dtype = op.dtypes.back() == kFloat64 ? kFloat64 : kFloat32;
  const std::vector<Layout> plan(op.inputs.size(), Layout::kContiguous);
  std::vector<Tensor> results[2];
  for (int threads = 1; threads <= 2; ++threads) {
    set_num_threads(threads);
    const std::vector<Tensor> leaves = as_leaves(op, make_inputs(op, dtype, plan));
    const Tensor out = op.run(leaves);
    if (op.has_gradient) results[threads - 1] = gradients(op, leaves, random_dense(out.shape(), 7, -1, 1));
    results[threads - 1].push_back(out);
  }
  set_num_threads(before);
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    ASSERT_EQ(results[0][i].defined(), results[1][i].defined());
    if (results[0][i].defined()) {
      EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << "tensor " << i;
    }
  }
}

std::string different_devices_text(const std::string& op, const std::vector<std::string>& names,
                                   const std::vector<Tensor>& operands) {
  Device home;
  ptrdiff_t most = 0;
  for (const Tensor& candidate : operands) {
    const ptrdiff_t count = std::count_if(operands.begin(), operands.end(),
                                          [&](const Tensor& t) { return t.device() == candidate.device(); });
    if (count > most) {
      most = count;
      home = candidate.device();
    }
  }
  std::vector<std::array<std::string, 4>> rows;
  std::array<size_t, 4> width{};
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& t = operands[i];
    rows.push_back({names[i], to_string(t.device()), to_string(t.dtype()), to_string(t.shape())});
    for (size_t c = 0; c < 4; ++c) width[c] = std::max(width[c], rows[i][c].size());
  }
  std::string text = op + ": operands are on different devices", moves;
  int num_moves = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool differs = operands[i].device() != home;
    text += "\n";
    for (size_t c = 0; c < 4; ++c) {
      text += (c == 3 ? " " : "  ") + rows[i][c];
      if (c < 3 || differs) text.append(width[c] - rows[i][c].size(), ' ');
    }
    if (!differs) continue;
    text += "  <- differs";
    moves += str(num_moves++ == 0 ? "" : " and ", names[i], ".to(", home, ")");
  }
  return str(text, "\n  move ", num_moves == 1 ? "it" : "them", " with ", moves, ", or move the module with model.to(",
             home, ")");
}

namespace {

/// A device other than test_device(): the second of its type, or the CPU if there is only one GPU.
Device other_device() {
  if (!test_device().is_cpu()) return cuda::device_count() > 1 ? Device(test_device().type, 1) : Device();
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  return Device(DeviceType::kCPU, 1);
}

}  // namespace

void check_errors(const OpCase& op) {
  SCOPED_TRACE(op.name);
  const DType dtype = op.dtypes.front();
  const std::vector<Layout> plan(op.inputs.size(), Layout::kContiguous);
  const std::vector<Tensor> good = make_inputs(op, dtype, plan);
  for (size_t i = 0; i < good.size(); ++i) {
    if (op.inputs[i].optional) continue;
    std::vector<Tensor> inputs = good;
    inputs[i] = Tensor();
    const std::string text = error_text<StateError>([&] { static_cast<void>(op.run(inputs)); });
    const std::string want = op.name + ": " + (op.names_operands ? op.inputs[i].name : "");
    EXPECT_EQ(text.substr(0, want.size()), want);
    EXPECT_NE(text.find(" is undefined"), std::string::npos) << text;
  }
  if (good.size() < 2) return;
  const std::vector<Tensor> elsewhere = make_inputs(op, dtype, plan, other_device());
  std::vector<std::string> names;
  for (const Input& input : op.inputs) names.push_back(input.name);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<Tensor> inputs = good;
    inputs[i] = elsewhere[i];
    const std::string text = error_text<DeviceError>([&] { static_cast<void>(op.run(inputs)); });
    if (!op.names_operands) {
      EXPECT_EQ(text.substr(0, op.name.size() + 1), op.name + ":");
      continue;
    }
    EXPECT_EQ(text, different_devices_text(op.name, names, inputs));
  }
}

void check(const OpCase& op) {
  check_values(op);
  if (op.has_gradient) check_gradients(op);
  check_threads(op);
  check_errors(op);
}

}  // namespace tandem::testing
