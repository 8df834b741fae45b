#include <tandem/tests/models/reference.h>

#include <tandem/autograd/grad_mode.h>
#include <tandem/io/safetensors.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/tests/nn/drawn.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing {

namespace {

const io::SafetensorsFile& fixtures() {
  static const io::SafetensorsFile kFile = io::load_safetensors("tests/fixtures/models/models.safetensors");
  return kFile;
}

/// FNV-1a, 32 bits.
uint32_t seed_of(const std::string& name) {
  uint32_t h = 2166136261;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619;
  return h;
}

}  // namespace

void draw_state(const State& state) {
  const NoGradGuard no_grad;
  std::set<const void*> done;
  for (const auto& [name, tensor] : state.tensors()) {
    if (!is_floating_point(tensor.dtype()) || !done.insert(tensor.data_ptr()).second) continue;
    const Tensor values = drawn(tensor.shape(), seed_of(name));
    if (tensor.dim() > 1) {
      tensor.copy_(values * std::sqrt(3.0 / static_cast<double>(tensor.numel() / tensor.size(0))));
    } else {
      tensor.copy_(values * 0.1 + (name.ends_with("weight") || name.ends_with("running_var") ? 1.0 : 0.0));
    }
  }
}

void draw_module(nn::Module& module) {
  module.to(kFloat64);
  module.eval();
  draw_state(module.state_dict());
}

Tensor drawn_tokens(const Shape& shape, int64_t vocabulary, uint32_t seed) {
  return floor((drawn(shape, seed) + 1) / 2 * vocabulary).to(kInt64);
}

Tensor recorded(const std::string& name) {
  for (const auto& [key, tensor] : fixtures().tensors) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no recorded tensor " << name;
  return {};
}

std::string recorded_text(const std::string& name) {
  const auto found = fixtures().metadata.find(name);
  if (found != fixtures().metadata.end()) return found->second;
  ADD_FAILURE() << "no recorded text " << name;
  return "";
}

std::string state_text(const State& state) {
  std::map<std::string, std::string> lines;
  for (const auto& [name, tensor] : state.tensors()) {
    std::string& line = lines[name];
    for (const int64_t size : tensor.shape()) line += (line.empty() ? "" : "x") + std::to_string(size);
  }
  std::string text;
  for (const auto& [name, shape] : lines) text += name + ' ' + shape + '\n';
  return text;
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.detach().contiguous().to_vector<double>(), e = expected.to_vector<double>();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    largest = std::max(largest, std::abs(e[i]));
    // Not std::max, which would ignore a NaN.
    if (!(std::abs(a[i] - e[i]) <= difference)) difference = std::abs(a[i] - e[i]);
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_LE(difference, tolerance * largest);
}

}  // namespace tandem::testing
