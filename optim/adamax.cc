#include <tandem/optim/adamax.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct AdamaxRule {
  using Options = AdamaxOptions;
  static constexpr const char* kName = "Adamax";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"beta1", &o.betas.first, in_zero_one},
            {"beta2", &o.betas.second, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"exp_avg"}, {"exp_inf"}};

  template <class T>
  struct Factors {
    T size, old_mean, new_mean, old_norm, eps, weight_decay;
  };
  static Factors<double> factors(const Options& o, int64_t step) {
    const auto [beta1, beta2] = o.betas;
    return {o.lr / (1 - std::pow(beta1, static_cast<double>(step))), beta1, 1 - beta1, beta2, o.eps, o.weight_decay};
  }

  static std::array<bool, 1> cases(const Options& o, bool) { return {o.weight_decay != 0}; }
  template <bool has_decay, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& mean, T& norm) {
    if constexpr (has_decay) g += f.weight_decay * parameter;
    mean = f.old_mean * mean + f.new_mean * g;
    const T old = f.old_norm * norm, now = std::abs(g) + f.eps;
    norm = now < old ? old : now;
    parameter -= f.size * (mean / norm);
  }
};

TANDEM_DEFINE_OPTIMIZER(Adamax, AdamaxRule)

}}}  // namespace tandem::v0::optim
