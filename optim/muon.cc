#include <tandem/optim/muon.h>

#include <algorithm>
#include <cmath>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

std::string below_100(const char* name, double value) {
  return value >= 0 && value < 100 ? "" : str(name, " is ", value, ", expected 0 <= ", name, " < 100");
}

/// ns_steps of the Newton-Schulz iteration for the matrix u, in bfloat16.
Tensor orthogonalize(const MuonOptions& o, const Tensor& u) {
  const bool is_tall = u.size(0) > u.size(1);
  const auto [a, b, c] = o.ns_coefficients;
  Tensor x = u.to(kBFloat16);
  if (is_tall) x = x.t();
  x = x / norm(x).clamp_min(o.eps);
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const Tensor gram = matmul(x, x.t());
    x = addmm(x, addmm(gram, gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

double adjusted_lr(const MuonOptions& o, const Tensor& parameter) {
  const auto rows = static_cast<double>(parameter.size(0)), columns = static_cast<double>(parameter.size(1));
  if (o.adjust_lr_fn == "match_rms_adamw") return o.lr * 0.2 * std::sqrt(std::max(rows, columns));
  const double ratio = rows / columns;
  return o.lr * std::sqrt(o.adjust_lr_fn == "original" ? std::max(1.0, ratio) : ratio);
}

}  // namespace

struct MuonRule {
  using Options = MuonOptions;
  static constexpr const char* kName = "Muon";
  static constexpr bool kCountsSteps = false;
  static constexpr int64_t kNumDims = 2;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"momentum", &o.momentum, in_zero_one},
            {"nesterov", &o.nesterov},
            {"ns_coefficients.0", &o.ns_coefficients[0], finite},
            {"ns_coefficients.1", &o.ns_coefficients[1], finite},
            {"ns_coefficients.2", &o.ns_coefficients[2], finite},
            {"eps", &o.eps, not_negative},
            {"ns_steps", &o.ns_steps, below_100},
            {"adjust_lr_fn", &o.adjust_lr_fn, nullptr, {"original", "match_rms_adamw", "spectral_unclamped"}},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"momentum_buffer"}};

  static void update_tensor(const Options& o, const TensorStep& step) {
    const Tensor &p = step.parameter, &g = step.gradient, &buffer = step.state[0];
    buffer.lerp_(g, 1 - o.momentum);
    const Tensor update = orthogonalize(o, o.nesterov ? lerp(g, buffer, o.momentum) : buffer);
    p.mul_(1 - o.lr * o.weight_decay);
    p.add_(update.to(p.dtype()), -adjusted_lr(o, p));
  }
};

TANDEM_DEFINE_OPTIMIZER(Muon, MuonRule)

}}}  // namespace tandem::v0::optim
