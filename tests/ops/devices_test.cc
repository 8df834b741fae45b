// Every operation of the registry: the errors for operands on different devices, and that a call uses only the device
// of its operands.
#include <gtest/gtest-spi.h>

#include <tandem/base/rank_context.h>
#include <tandem/tests/ops/four_devices.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing { namespace {

class OpDevices : public FourDevices {};

/// Every case whose operands must be on one device, with the declaration of its operation.
std::vector<std::pair<std::string, OpCase>> single_device_cases() {
  std::vector<std::pair<std::string, OpCase>> result;
  for (const Operation& operation : op_cases().operations) {
    for (const OpCase& op : operation.cases) result.emplace_back(operation.declaration, op);
  }
  return result;
}

/// The inputs of one call; nullopt: undefined.
using Call = std::vector<std::optional<Input>>;

/// Calls with all inputs, without the optional inputs, and with each input in turn as a 0-dim tensor.
std::vector<Call> calls_of(const OpCase& row) {
  const Call all(row.inputs.begin(), row.inputs.end());
  std::vector<Call> calls = {all};
  if (std::any_of(row.inputs.begin(), row.inputs.end(), [](const Input& input) { return input.optional; })) {
    for (std::optional<Input>& input : calls.emplace_back(all)) {
      if (input->optional) input.reset();
    }
  }
  for (size_t i = 0; i < all.size() && row.broadcasts; ++i) (*calls.emplace_back(all)[i]).shape = {};
  return calls;
}

/// Input k of a call on device k of `devices`, or all on its only device; floating inputs without a fixed dtype get
/// `dtype`.
std::vector<Tensor> make_operands(const Call& call, const std::vector<Device>& devices, DType dtype = kFloat32,
                                  Layout layout = Layout::kContiguous) {
  std::vector<Tensor> tensors(call.size());
  for (size_t k = 0; k < call.size(); ++k) {
    if (!call[k]) continue;
    const DType own = call[k]->dtype.value_or(dtype);
    Dense values = random_dense(call[k]->shape, 100 + k, call[k]->low, call[k]->high);
    if (!is_floating_point(own)) {
      for (double& value : values.values) value = std::floor(value);
    }
    tensors[k] = make_tensor(values, own, layout, devices[devices.size() == 1 ? 0 : k]);
  }
  return tensors;
}

/// The defined operands and their names.
struct Present {
  explicit Present(const Call& call, const std::vector<Tensor>& operands) {
    for (size_t k = 0; k < call.size(); ++k) {
      if (!call[k]) continue;
      names.push_back(call[k]->name);
      tensors.push_back(operands[k]);
    }
  }
  std::vector<std::string> names;
  std::vector<Tensor> tensors;
};

/// Fails if f allocates on `device` or draws from its random number generator.
void expect_untouched(Device device, const std::function<void()>& f) {
  reset_peak_memory(device);
  const int64_t before = memory_stats(device).allocated;
  const uint64_t position = default_generator(device).reserve(0).offset;
  f();
  EXPECT_EQ(memory_stats(device).allocated, before) << "allocated on " << device;
  EXPECT_EQ(memory_stats(device).peak_allocated, before) << "allocated for a while on " << device;
  EXPECT_EQ(default_generator(device).reserve(0).offset, position) << "drawn on " << device;
}

/// Verifies the error text of the call inside a module, and that nothing was allocated, moved or changed.
void expect_refused(const OpCase& row, const Call& call, const std::vector<Device>& devices) {
  const std::vector<Tensor> operands = make_operands(call, devices);
  const Present present(call, operands);
  RankContext::current().module_scope = make_ref<ScopeName>("Linear 'encoder.fc1'");
  std::string text;
  std::function<void()> run = [&] { text = error_text<DeviceError>([&] { row.run(operands); }); };
  for (int i = 0; i < 3; ++i) run = [=] { expect_untouched(Device(test_device().type, i), run); };
  run();
  RankContext::current().module_scope = {};
  EXPECT_EQ(text, different_devices_text(row.name, present.names, present.tensors) + "\n  in Linear 'encoder.fc1'");
  for (const Tensor& tensor : present.tensors) EXPECT_EQ(tensor.version(), 0u);
}

TEST_F(OpDevices, EachMisplacedOperandIsRejected) {
  for (const auto& [declaration, row] : single_device_cases()) {
    for (const Call& call : calls_of(row)) {
      if (call.size() - static_cast<size_t>(std::count(call.begin(), call.end(), std::nullopt)) < 2) continue;
      for (size_t k = 0; k < call.size(); ++k) {
        if (!call[k]) continue;
        SCOPED_TRACE(str(declaration, ", ", call[k]->name, " ", call[k]->shape, " on ", on(1)));
        std::vector<Device> devices(call.size(), on(0));
        devices[k] = on(1);
        expect_refused(row, call, devices);
      }
    }
  }
}

TEST_F(OpDevices, OperandsOnThreeDevicesAreRejected) {
  int64_t num_calls = 0;
  for (const auto& [declaration, row] : single_device_cases()) {
    for (const Call& call : calls_of(row)) {
      if (std::count(call.begin(), call.end(), std::nullopt) != 0 || call.size() < 3) continue;
      SCOPED_TRACE(declaration);
      std::vector<Device> devices(call.size(), on(2));
      devices[0] = on(1);
      devices[call.size() - 1] = on(0);
      expect_refused(row, call, devices);
      ++num_calls;
    }
  }
  EXPECT_GE(num_calls, 20);
}

// Some complete texts, which different_devices_text does not compute.
TEST_F(OpDevices, ErrorTextsMarkMisplacedOperands) {
  const auto text = [](const std::string& name, const std::vector<Device>& devices) {
    const auto cases = single_device_cases();
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const auto& c) { return c.second.name == name; });
    return error_text<DeviceError>([&] { found->second.run(make_operands(calls_of(found->second)[0], devices)); });
  };
  const Device cpu = FourDevices::cpu(0), one = FourDevices::cpu(1), two = FourDevices::cpu(2);
  EXPECT_EQ(text("addmm", {cpu, one, two}),
            "addmm: operands are on different devices\n"
            "  input  cpu    float32 [4]\n"
            "  mat1   cpu:1  float32 [3, 5]  <- differs\n"
            "  mat2   cpu:2  float32 [5, 4]  <- differs\n"
            "  move them with mat1.to(cpu) and mat2.to(cpu), or move the module with model.to(cpu)");
  EXPECT_EQ(text("where", {one, two, cpu}),
            "where: operands are on different devices\n"
            "  condition  cpu:1  bool    [3, 7]\n"
            "  a          cpu:2  float32 [7]     <- differs\n"
            "  b          cpu    float32 [3, 1]  <- differs\n"
            "  move them with a.to(cpu:1) and b.to(cpu:1), or move the module with model.to(cpu:1)");
  EXPECT_EQ(
      text("batch_norm", {one, cpu, cpu, one, one}),
      "batch_norm: operands are on different devices\n"
      "  input         cpu:1  float32 [2, 3, 4, 5]\n"
      "  running_mean  cpu    float32 [3]           <- differs\n"
      "  running_var   cpu    float32 [3]           <- differs\n"
      "  weight        cpu:1  float32 [3]\n"
      "  bias          cpu:1  float32 [3]\n"
      "  move them with running_mean.to(cpu:1) and running_var.to(cpu:1), or move the module with model.to(cpu:1)");
  EXPECT_EQ(text("cat", {one, cpu, one}),
            "cat: operands are on different devices\n"
            "  tensors[0]  cpu:1  float32 [3, 7]\n"
            "  tensors[1]  cpu    float32 [3, 7]  <- differs\n"
            "  tensors[2]  cpu:1  float32 [3, 7]\n"
            "  move it with tensors[1].to(cpu:1), or move the module with model.to(cpu:1)");
}

/// Makes the differentiable operands leaves and returns them.
std::vector<Tensor> make_leaves(const Call& call, std::vector<Tensor>& operands) {
  std::vector<Tensor> leaves;
  for (size_t k = 0; k < call.size(); ++k) {
    if (!call[k] || call[k]->dtype || !call[k]->differentiable) continue;
    leaves.push_back(operands[k].requires_grad_());
  }
  return leaves;
}

std::vector<Tensor> that_require_grad(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const Tensor& t) { return t.defined() && t.requires_grad(); });
  return result;
}

std::vector<Tensor> cotangents_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(ones_like(tensor));
  return result;
}

void expect_all_on(Device device, const std::vector<Tensor>& tensors, const char* what) {
  for (const Tensor& tensor : tensors) {
    ASSERT_TRUE(tensor.defined()) << what;
    EXPECT_EQ(tensor.device(), device) << what;
  }
}

/// Runs the call on the second device, with first and second gradients.
void run_on_one(const OpCase& row, std::vector<Tensor> operands, const std::vector<Tensor>& leaves) {
  const Device one(test_device().type, 1);
  if (row.in_place && operands[0].requires_grad()) {
    operands[0] = operands[0] * 1;  // a leaf is not changed in place
  }
  const std::vector<Tensor> results = row.run(operands).tensors;
  expect_all_on(one, results, "result");
  const std::vector<Tensor> roots = that_require_grad(results);
  EXPECT_EQ(roots.empty(), !row.has_gradient);
  if (roots.empty()) return;
  autograd::backward(roots, cotangents_of(roots), {.retain_graph = true});
  for (const Tensor& leaf : leaves) expect_all_on(one, {leaf.grad()}, "gradient");
  if (!row.has_second_gradient) return;
  const std::vector<Tensor> grads = grad(roots, leaves, cotangents_of(roots), {.create_graph = true});
  expect_all_on(one, grads, "recorded gradient");
  const std::vector<Tensor> second = that_require_grad(grads);
  if (!second.empty()) autograd::backward(second, cotangents_of(second));
}

TEST_F(OpDevices, ResultsAndGradientsStayOnOperandDevice) {
  for (const auto& [declaration, row] : single_device_cases()) {
    for (const Call& call : calls_of(row)) {
      for (const DType dtype : {kFloat32, kFloat64, kFloat16}) {
        for (const Layout layout : {Layout::kContiguous, Layout::kTransposed}) {
          for (const bool with_autocast : {false, true}) {
            SCOPED_TRACE(str(declaration, " ", dtype, layout == Layout::kContiguous ? "" : " transposed",
                             with_autocast ? " under autocast" : ""));
            std::vector<Tensor> operands = make_operands(call, {on(1)}, dtype, layout);
            const std::vector<Tensor> leaves = make_leaves(call, operands);
            expect_untouched(on(0), [&] {
              std::optional<Autocast> autocast;
              if (with_autocast) autocast.emplace(kBFloat16);
              EXPECT_NO_THROW(run_on_one(row, std::move(operands), leaves));
            });
          }
        }
      }
    }
  }
}

TEST_F(OpDevices, ChecksFindFaults) {
  const OpCase add_case = {
      .name = "add", .inputs = {{"a", {3, 7}}, {"b", {7}}}, .run = [](const Tensors& x) { return add(x[0], x[1]); }};
  OpCase wrong = add_case;
  wrong.name = "sub";
  const std::vector<Device> apart = {on(0), on(1)};
  EXPECT_NONFATAL_FAILURE(expect_refused(wrong, calls_of(wrong)[0], apart), "different devices");
  const auto run = [&](const OpCase& op) {
    std::vector<Tensor> operands = make_operands(calls_of(op)[0], {on(1)});
    const std::vector<Tensor> leaves = make_leaves(calls_of(op)[0], operands);
    expect_untouched(on(0), [&] { run_on_one(op, operands, leaves); });
  };
  run(add_case);
  wrong = add_case;
  wrong.has_gradient = false;
  EXPECT_NONFATAL_FAILURE(run(wrong), "roots.empty()");
  wrong = add_case;
  wrong.run = [](const Tensors& x) {
    const Tensor elsewhere = zeros({3}, {kFloat32, on(0)});
    return add(x[0], x[1]);
  };
  EXPECT_NONFATAL_FAILURE(run(wrong), "allocated for a while");
}

TEST_F(OpDevices, ResultsAreOnTheRequestedDevice) {
  int64_t num_calls = 0;
  for (const Operation& operation : op_cases().operations) {
    for (const CrossingCase& crossing : operation.crossing) {
      SCOPED_TRACE(operation.declaration);
      ++num_calls;
      Tensors inputs;
      for (const auto& [shape, i] : crossing.inputs) inputs.push_back(random_on(i, shape, 3).requires_grad_());
      expect_untouched(on(0), [&] {
        Tensors results;
        for (const auto& [tensor, device] : crossing.run(inputs)) {
          EXPECT_EQ(tensor.device(), device);
          results.push_back(tensor);
        }
        EXPECT_FALSE(results.empty());
        if (inputs.empty()) return;
        autograd::backward(results, cotangents_of(results));
        for (const Tensor& input : inputs) expect_all_on(input.device(), {input.grad()}, "gradient");
      });
    }
  }
  EXPECT_GE(num_calls, 10);
}

}}  // namespace tandem::testing
