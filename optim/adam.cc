#include <tandem/optim/adam.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// `is_decoupled`: weight decay scales the parameter instead of joining the gradient.
template <class OptionsType, bool is_decoupled>
struct AdamFamilyRule {
  using Options = OptionsType;
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"beta1", &o.betas.first, in_zero_one},
            {"beta2", &o.betas.second, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"amsgrad", &o.amsgrad},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {
      {"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", [](const Options& o) { return o.amsgrad; }}};

  template <class T>
  struct Factors {
    T weight_decay;
    T shrink;
    T old_mean;
    T new_mean;
    T old_square;
    T new_square;
    T eps;
    T size;        ///< lr / (1 - beta1^t)
    T root_scale;  ///< 1 / sqrt(1 - beta2^t)
  };
  static Factors<double> factors(const Options& o, int64_t step) {
    const auto [beta1, beta2] = o.betas;
    const auto t = static_cast<double>(step);
    return {.weight_decay = o.weight_decay,
            .shrink = 1 - o.lr * o.weight_decay,
            .old_mean = beta1,
            .new_mean = 1 - beta1,
            .old_square = beta2,
            .new_square = 1 - beta2,
            .eps = o.eps,
            .size = o.lr / (1 - std::pow(beta1, t)),
            .root_scale = 1 / std::sqrt(1 - std::pow(beta2, t))};
  }

  static std::array<bool, 2> cases(const Options& o, bool) { return {o.weight_decay != 0, o.amsgrad}; }
  template <bool has_decay, bool is_amsgrad, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& mean, T& square, T& max_square) {
    T p = parameter;
    if constexpr (has_decay && is_decoupled) p *= f.shrink;
    if constexpr (has_decay && !is_decoupled) g += f.weight_decay * p;
    const T m = f.old_mean * mean + f.new_mean * g;
    T v = f.old_square * square + f.new_square * g * g;
    mean = m;
    square = v;
    if constexpr (is_amsgrad) v = max_square = v < max_square ? max_square : v;
    parameter = p - f.size * (m / (std::sqrt(v) * f.root_scale + f.eps));
  }
};

struct AdamRule : AdamFamilyRule<AdamOptions, false> {
  static constexpr const char* kName = "Adam";
};
struct AdamWRule : AdamFamilyRule<AdamWOptions, true> {
  static constexpr const char* kName = "AdamW";
};

TANDEM_DEFINE_OPTIMIZER(Adam, AdamRule)
TANDEM_DEFINE_OPTIMIZER(AdamW, AdamWRule)

}}}  // namespace tandem::v0::optim
