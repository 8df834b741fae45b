// Every public operation, by the tables of device_rows.h: what it says of operands on different devices, and that it stays on the
// one they share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/base/rank_context.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/ops/device_rows.h>
#include <tandem/tests/ops/four_devices.h>
#include <tandem/tests/ops/op_signatures.h>

namespace tandem::testing { namespace {

class OpDevices : public FourDevices {};

// --- the tables are complete -------------------------------------------------------------------------------------------------

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OpSignatures, SignaturesAreParsedFromHeaderText) {
  const std::string header =
      "/// TANDEM_OP Tensor comment(Tensor input);\n"
      "TANDEM_API void cast_for(Tensor input);\n"
      "TANDEM_OP Tensor wave(Tensor input);\n"
      "TANDEM_OP Tensor wave(const Tensor& input, Scalar a = f(1, 2), const Options& options = {1, 2});\n"
      "TANDEM_OP std::vector<Tensor> waves(\n"
      "    const std::map<Tensor, int>& tensors,  // both\n"
      "    Generator* generator = nullptr,\n"
      "    std::optional<Scalar> b = {});\n"
      "TANDEM_API inline Tensor operator*(const Tensor& a, Scalar) { return wave(a); }\n"
      "class Tensor {\n"
      "  const Tensor& zero_() const;\n"
      "};\n"
      "namespace tandem { inline namespace v0 { namespace deep {\n"
      "TANDEM_OP\nTensor wave(Tensor);\n";
  using Set = std::set<std::string>;
  EXPECT_EQ(declared_signatures(header, "TANDEM_OP"),
            (Set{"deep::wave(Tensor)", "wave(Tensor)", "wave(Tensor, Scalar, Options)",
                 "waves(map<Tensor, int>, Generator*, optional<Scalar>)"}));
  EXPECT_EQ(declared_signatures(header, "TANDEM_API inline"), (Set{"operator*(Tensor, Scalar)"}));
  EXPECT_EQ(declared_signatures(header, "\n  const Tensor&"), (Set{"zero_()"}));
  EXPECT_EQ(differences({"a(Tensor)", "b(Tensor)", "b(Tensor, Scalar)"}, {"a(Tensor)", "b(Tensor)", "c()"}),
            (std::vector<std::string>{"b(Tensor, Scalar): no row", "c(): not declared"}));
}

TEST(OpSignatures, EveryDeclaredOperationHasTestRow) {
  std::set<std::string> declared = declared_signatures(read("tensor/tensor.h"), "\n  const Tensor&");
  EXPECT_TRUE(declared.contains("add_(Tensor, Scalar)"));
  for (const auto& file : std::filesystem::directory_iterator("ops")) {
    for (const char* marker : {"TANDEM_OP", "TANDEM_API inline"})
      declared.merge(declared_signatures(read(file), marker));
  }
  EXPECT_GE(declared.size(), 130u);
  std::set<std::string> listed;
  for (const OpRow& row : op_rows()) listed.insert(row.signature);
  for (const CrossingRow& row : crossing_rows()) EXPECT_TRUE(listed.insert(row.signature).second) << row.signature;
  EXPECT_EQ(differences(declared, listed), std::vector<std::string>());
}

// --- operands ----------------------------------------------------------------------------------------------------------------

/// The inputs of one call; those that it goes without are none.
using Call = std::vector<std::optional<Input>>;

/// With all inputs, without the optional ones, and with each in turn of no dimensions.
std::vector<Call> calls_of(const OpRow& row) {
  const Call all(row.inputs.begin(), row.inputs.end());
  std::vector<Call> calls = {all};
  if (std::any_of(row.inputs.begin(), row.inputs.end(), [](const Input& input) { return input.optional; })) {
    for (std::optional<Input>& input : calls.emplace_back(all)) {
      if (input->optional) input.reset();
    }
  }
  for (size_t i = 0; i < all.size() && row.traits & kBroadcasts; ++i) (*calls.emplace_back(all)[i]).shape = {};
  return calls;
}

/// Input k of a call on device k of `devices` (of one: all there); floating ones without a dtype of their own get `dtype`.
std::vector<Tensor> make_operands(const Call& call, const std::vector<Device>& devices, DType dtype = kFloat32,
                                  Layout layout = Layout::kContiguous) {
  std::vector<Tensor> tensors(call.size());
  for (size_t k = 0; k < call.size(); ++k) {
    if (!call[k]) continue;
    const DType own = call[k]->dtype.value_or(dtype);
    Dense values = random_dense(call[k]->shape, 100 + k, call[k]->low, call[k]->high);
    if (!is_floating_point(own))
      std::transform(values.values.begin(), values.values.end(), values.values.begin(), floor);
    tensors[k] = make_tensor(values, own, layout, devices[devices.size() == 1 ? 0 : k]);
  }
  return tensors;
}

/// The operands that there are, and their names.
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

/// Fails unless f neither allocates on `device` nor draws from its stream of random numbers.
void expect_untouched(Device device, const std::function<void()>& f) {
  reset_peak_memory(device);
  const int64_t before = memory_stats(device).allocated;
  const uint64_t position = default_generator(device).reserve(0).offset;
  f();
  EXPECT_EQ(memory_stats(device).allocated, before) << "allocated on " << device;
  EXPECT_EQ(memory_stats(device).peak_allocated, before) << "allocated for a while on " << device;
  EXPECT_EQ(default_generator(device).reserve(0).offset, position) << "drawn on " << device;
}

// --- operands on different devices -------------------------------------------------------------------------------------------

/// The text of the call's error inside of a module; nothing may have been allocated, moved or changed.
void expect_refused(const OpRow& row, const Call& call, const std::vector<Device>& devices) {
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
  for (const OpRow& row : op_rows()) {
    for (const Call& call : calls_of(row)) {
      if (call.size() - static_cast<size_t>(std::count(call.begin(), call.end(), std::nullopt)) < 2) continue;
      for (size_t k = 0; k < call.size(); ++k) {
        if (!call[k]) continue;
        SCOPED_TRACE(str(row.signature, ", ", call[k]->name, " ", call[k]->shape, " on ", on(1)));
        std::vector<Device> devices(call.size(), on(0));
        devices[k] = on(1);
        expect_refused(row, call, devices);
      }
    }
  }
}

TEST_F(OpDevices, OperandsOnThreeDevicesAreRejected) {
  int64_t num_calls = 0;
  for (const OpRow& row : op_rows()) {
    for (const Call& call : calls_of(row)) {
      if (std::count(call.begin(), call.end(), std::nullopt) != 0 || call.size() < 3) continue;
      SCOPED_TRACE(row.signature);
      std::vector<Device> devices(call.size(), on(2));
      devices[0] = on(1);
      devices[call.size() - 1] = on(0);
      expect_refused(row, call, devices);
      ++num_calls;
    }
  }
  EXPECT_GE(num_calls, 20);
}

// Some texts word by word, for who reads this; the others come from different_devices_text.
TEST_F(OpDevices, ErrorTextsMarkMisplacedOperands) {
  const auto text = [](const char* signature, const std::vector<Device>& devices) {
    const std::vector<OpRow> rows = op_rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const OpRow& r) { return r.signature == signature; });
    return error_text<DeviceError>([&] { row->run(make_operands(calls_of(*row)[0], devices)); });
  };
  const Device cpu = FourDevices::cpu(0), one = FourDevices::cpu(1), two = FourDevices::cpu(2);
  EXPECT_EQ(text("addmm(Tensor, Tensor, Tensor, Scalar, Scalar)", {cpu, one, two}),
            "addmm: operands are on different devices\n"
            "  input  cpu    float32 [4]\n"
            "  mat1   cpu:1  float32 [3, 5]  <- differs\n"
            "  mat2   cpu:2  float32 [5, 4]  <- differs\n"
            "  move them with mat1.to(cpu) and mat2.to(cpu), or move the module with model.to(cpu)");
  EXPECT_EQ(text("where(Tensor, Tensor, Tensor)", {one, two, cpu}),
            "where: operands are on different devices\n"
            "  condition  cpu:1  bool    [3, 7]\n"
            "  a          cpu:2  float32 [7]     <- differs\n"
            "  b          cpu    float32 [3, 1]  <- differs\n"
            "  move them with a.to(cpu:1) and b.to(cpu:1), or move the module with model.to(cpu:1)");
  EXPECT_EQ(
      text("batch_norm(Tensor, Tensor, Tensor, Tensor, Tensor, bool, double, double)", {one, cpu, cpu, one, one}),
      "batch_norm: operands are on different devices\n"
      "  input         cpu:1  float32 [2, 3, 4, 5]\n"
      "  running_mean  cpu    float32 [3]           <- differs\n"
      "  running_var   cpu    float32 [3]           <- differs\n"
      "  weight        cpu:1  float32 [3]\n"
      "  bias          cpu:1  float32 [3]\n"
      "  move them with running_mean.to(cpu:1) and running_var.to(cpu:1), or move the module with model.to(cpu:1)");
  EXPECT_EQ(text("cat(vector<Tensor>, int64_t)", {one, cpu, one}),
            "cat: operands are on different devices\n"
            "  tensors[0]  cpu:1  float32 [3, 7]\n"
            "  tensors[1]  cpu    float32 [3, 7]  <- differs\n"
            "  tensors[2]  cpu:1  float32 [3, 7]\n"
            "  move it with tensors[1].to(cpu:1), or move the module with model.to(cpu:1)");
}

// --- operands on one device --------------------------------------------------------------------------------------------------

/// Those that get gradients; made to.
std::vector<Tensor> make_leaves(const Call& call, std::vector<Tensor>& operands) {
  std::vector<Tensor> leaves;
  for (size_t k = 0; k < call.size(); ++k) {
    if (!call[k] || call[k]->dtype || !call[k]->differentiable) continue;
    leaves.push_back(operands[k].set_requires_grad());
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

/// The call on the second device, its gradients, and theirs.
void run_on_one(const OpRow& row, std::vector<Tensor> operands, const std::vector<Tensor>& leaves) {
  const Device one(test_device().type, 1);
  if (row.signature.find("_(") != std::string::npos && operands[0].requires_grad()) {
    operands[0] = operands[0] * 1;  // a leaf is not changed in place
  }
  const std::vector<Tensor> results = row.run(operands).tensors;
  expect_all_on(one, results, "result");
  const std::vector<Tensor> roots = that_require_grad(results);
  EXPECT_EQ(roots.empty(), (row.traits & kNoGradient) != 0);
  if (roots.empty()) return;
  autograd::backward(roots, cotangents_of(roots), {.retain_graph = true});
  for (const Tensor& leaf : leaves) expect_all_on(one, {leaf.grad()}, "gradient");
  if (row.traits & kNoSecondGradient) return;
  const std::vector<Tensor> grads = grad(roots, leaves, cotangents_of(roots), {.create_graph = true});
  expect_all_on(one, grads, "recorded gradient");
  const std::vector<Tensor> second = that_require_grad(grads);
  if (!second.empty()) autograd::backward(second, cotangents_of(second));
}

TEST_F(OpDevices, ResultsAndGradientsStayOnOperandDevice) {
  for (const OpRow& row : op_rows()) {
    for (const Call& call : calls_of(row)) {
      for (const DType dtype : {kFloat32, kFloat64, kFloat16}) {
        for (const Layout layout : {Layout::kContiguous, Layout::kTransposed}) {
          for (const bool with_autocast : {false, true}) {
            SCOPED_TRACE(str(row.signature, " ", dtype, layout == Layout::kContiguous ? "" : " transposed",
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

TEST_F(OpDevices, ResultsAreOnTheRequestedDevice) {
  for (const CrossingRow& row : crossing_rows()) {
    SCOPED_TRACE(row.signature);
    std::vector<Tensor> inputs;
    for (const auto& [shape, i] : row.inputs) inputs.push_back(random_on(i, shape, 3).set_requires_grad());
    expect_untouched(on(0), [&] {
      std::vector<Tensor> results;
      for (const auto& [tensor, device] : row.run(inputs)) {
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

}}  // namespace tandem::testing
