// The activation functions in long double.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include <tandem/ops/activation.h>
#include <tandem/tensor/tensor.h>

namespace tandem::testing { namespace activation {

using Real = long double;

using Function = std::function<Real(Real)>;

inline constexpr Real kSlope = 1.595769121605730711759785L;  // 2 sqrt(2 / pi)

inline Real normal(Real x) { return 0.5L * erfcl(-x * 0.707106781186547524401L); }

inline Real logistic(Real x) { return 1 / (1 + expl(-x)); }

inline Real exact_gelu(Real x) { return std::isinf(x) && x < 0 ? 0 : x * normal(x); }

inline Real exact_gelu_tanh(Real x) { return x < -100 ? 0 : x * logistic(kSlope * (x + 0.044715L * x * x * x)); }

inline Real exact_silu(Real x) { return x < -10000 ? 0 : x * logistic(x); }

struct Activation {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
  Function exact;
};

inline std::vector<Activation> activations() {
  return {{"gelu", [](const Tensor& x) { return gelu(x); }, exact_gelu},
          {"gelu", [](const Tensor& x) { return gelu(x, GeluApproximation::kTanh); }, exact_gelu_tanh},
          {"silu", [](const Tensor& x) { return silu(x); }, exact_silu},
          {"tanh", [](const Tensor& x) { return x.tanh(); }, tanhl},
          {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }, logistic}};
}

}}  // namespace tandem::testing::activation
