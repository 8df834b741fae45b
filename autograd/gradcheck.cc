#include <tandem/autograd/gradcheck.h>

#include <cmath>

#include <tandem/autograd/engine.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace autograd {

namespace {

/// Uniform with magnitude in [0.25, 1), so that every element of a gradient counts.
std::vector<double> random_cotangent(int64_t n, uint64_t seed) {
  PhiloxState stream = Generator(seed).reserve(n);
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = stream.block(static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)];
    const double magnitude = 0.25 + 0.75 * (bits >> 1) * 0x1p-31;
    values[static_cast<size_t>(i)] = (bits & 1) != 0 ? magnitude : -magnitude;
  }
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Position in memory of element `index` (row-major order) of a strided tensor.
int64_t element_offset(const Tensor& tensor, int64_t index) {
  int64_t offset = 0;
  for (size_t d = tensor.shape().size(); d-- > 0;) {
    offset += index % tensor.shape()[d] * tensor.strides()[d];
    index /= tensor.shape()[d];
  }
  return offset;
}

/// Throws StateError unless `recorded`, from a backward with create_graph, equals `plain`, from a backward without it:
/// nodes may run different code for the two.
void check_same(size_t input, const Tensor& recorded, const Tensor& plain, const GradcheckOptions& options) {
  if (!recorded.defined() && !plain.defined()) return;
  const auto values = [](const Tensor& gradient, const Tensor& other) {
    return gradient.defined() ? gradient.to_vector<double>()
                              : std::vector<double>(static_cast<size_t>(other.numel()), 0.0);
  };
  const std::vector<double> a = values(recorded, plain);
  const std::vector<double> b = values(plain, recorded);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool close = std::abs(a[i] - b[i]) <= options.atol + options.rtol * std::abs(b[i]);  // false for NaN
    TANDEM_CHECK(StateError, close, "gradgradcheck: input ", input, ", element ", i,
                 ": backward under create_graph gives ", a[i], ", without it ", b[i]);
  }
}

}  // namespace

void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
               GradcheckOptions options) {
  std::vector<Tensor> wanted;
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    TANDEM_CHECK(DTypeError, input.dtype() == kFloat64, "gradcheck: inputs must be float64, got ", describe(input));
    wanted.push_back(input);
  }
  TANDEM_CHECK(ValueError, !wanted.empty(), "gradcheck: no input requires grad");
  const Tensor output = f(inputs);
  TANDEM_CHECK(DTypeError, output.dtype() == kFloat64, "gradcheck: the output must be float64, got ", describe(output));
  const std::vector<double> cotangent = random_cotangent(output.numel(), options.seed);
  std::vector<Tensor> analytic(wanted.size());
  if (output.requires_grad()) {
    const Tensor w = from_vector(cotangent, output.shape(), output.options());
    analytic = grad({&output, 1}, wanted, {&w, 1});
  }
  for (size_t k = 0; k < wanted.size(); ++k) {
    const std::vector<double> gradient = analytic[k].defined()
                                             ? analytic[k].to_vector<double>()
                                             : std::vector<double>(static_cast<size_t>(wanted[k].numel()), 0.0);
    for (int64_t i = 0; i < wanted[k].numel(); ++i) {
      const Tensor element =
          make_view(wanted[k].storage(), kFloat64, {}, {}, wanted[k].impl().offset + element_offset(wanted[k], i));
      const double kept = element.item<double>();
      primitives::fill(element, kept + options.step);
      const double above = dot(cotangent, f(inputs).to_vector<double>());
      primitives::fill(element, kept - options.step);
      const double below = dot(cotangent, f(inputs).to_vector<double>());
      primitives::fill(element, kept);
      const double numeric = (above - below) / (2 * options.step);
      const double got = gradient[static_cast<size_t>(i)];
      const bool close = std::abs(got - numeric) <= options.atol + options.rtol * std::abs(numeric);  // false for NaN
      TANDEM_CHECK(StateError, close, "gradcheck: input ", k, ", element ", i, ": backward gives ", got,
                   ", central differences ", numeric);
    }
  }
}

void gradgradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                   GradcheckOptions options) {
  const Tensor output = f(inputs);
  Tensor cotangent = from_vector(random_cotangent(output.numel(), options.seed + 1), output.shape(), output.options());
  cotangent.requires_grad_();
  const size_t num_inputs = inputs.size();
  inputs.push_back(cotangent);
  for (size_t k = 0; k < num_inputs; ++k) {
    if (!inputs[k].requires_grad()) continue;
    const auto first_gradient = [&](const std::vector<Tensor>& all) {
      const Tensor y = f(std::vector<Tensor>(all.begin(), all.end() - 1));
      Tensor g = grad({&y, 1}, {&all[k], 1}, {&all.back(), 1}, {.retain_graph = true, .create_graph = true})[0];
      return g.defined() ? g : zeros(all[k].shape(), all[k].options());
    };
    const Tensor y = f(std::vector<Tensor>(inputs.begin(), inputs.end() - 1));
    if (y.requires_grad()) {
      const Tensor plain = grad({&y, 1}, {&inputs[k], 1}, {&cotangent, 1}, {.retain_graph = true})[0];
      check_same(k, grad({&y, 1}, {&inputs[k], 1}, {&cotangent, 1}, {.create_graph = true})[0], plain, options);
    }
    gradcheck(first_gradient, inputs, options);
  }
}

}}}  // namespace tandem::v0::autograd
