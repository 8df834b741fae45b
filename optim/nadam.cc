#include <tandem/optim/nadam.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

/// The product of 1 - q^i / 2 for i = 1 .. t. Its logarithm is minus the sum over k >= 1 of (q^k + q^2k + .. + q^tk) /
/// (k 2^k), whose terms from k = 54 on are below
/// double's precision.
double decayed_product(double q, double t) {
  double sum = 0;
  for (int k = 53; k >= 1; --k) {
    const double log_r = k * std::log(q);  // of r = q^k; the sum of r^i is r (1 - r^t) / (1 - r)
    const double powers = log_r == 0 ? t : std::exp(log_r) * std::expm1(t * log_r) / std::expm1(log_r);
    sum += powers / (k * std::exp2(k));
  }
  return std::exp(-sum);
}

}  // namespace

struct NAdamRule {
  using Options = NAdamOptions;
  static constexpr const char* kName = "NAdam";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"beta1", &o.betas.first, in_zero_one},
            {"beta2", &o.betas.second, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"momentum_decay", &o.momentum_decay, not_negative},
            {"decoupled_weight_decay", &o.decoupled_weight_decay},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"exp_avg"}, {"exp_avg_sq"}};

  template <class T>
  struct Factors {
    T weight_decay, shrink, old_mean, new_mean, old_square, new_square, eps;
    T gradient_size;  ///< lr (1 - mu(t)) / (1 - M(t))
    T mean_size;      ///< lr mu(t + 1) / (1 - M(t + 1))
    T root_scale;     ///< 1 / sqrt(1 - beta2^t)
  };
  static Factors<double> factors(const Options& o, int64_t step) {
    const auto [beta1, beta2] = o.betas;
    const auto t = static_cast<double>(step);
    const double q = std::pow(0.96, o.momentum_decay);
    const double mu = beta1 * (1 - 0.5 * std::pow(q, t)), next_mu = beta1 * (1 - 0.5 * std::pow(q, t + 1));
    const double product = std::pow(beta1, t) * decayed_product(q, t);
    return {.weight_decay = o.weight_decay,
            .shrink = 1 - o.lr * o.weight_decay,
            .old_mean = beta1,
            .new_mean = 1 - beta1,
            .old_square = beta2,
            .new_square = 1 - beta2,
            .eps = o.eps,
            .gradient_size = o.lr * (1 - mu) / (1 - product),
            .mean_size = o.lr * next_mu / (1 - product * next_mu),
            .root_scale = 1 / std::sqrt(1 - std::pow(beta2, t))};
  }

  static std::array<bool, 2> cases(const Options& o, bool) { return {o.weight_decay != 0, o.decoupled_weight_decay}; }
  template <bool has_decay, bool is_decoupled, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& mean, T& square) {
    if constexpr (has_decay && is_decoupled) parameter *= f.shrink;
    if constexpr (has_decay && !is_decoupled) g += f.weight_decay * parameter;
    mean = f.old_mean * mean + f.new_mean * g;
    square = f.old_square * square + f.new_square * g * g;
    parameter -= (f.gradient_size * g + f.mean_size * mean) / (std::sqrt(square) * f.root_scale + f.eps);
  }
};

TANDEM_DEFINE_OPTIMIZER(NAdam, NAdamRule)

}}}  // namespace tandem::v0::optim
