#include <tandem/optim/radam.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct RAdamRule {
  using Options = RAdamOptions;
  static constexpr const char* kName = "RAdam";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"beta1", &o.betas.first, in_zero_one},
            {"beta2", &o.betas.second, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"decoupled_weight_decay", &o.decoupled_weight_decay},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"exp_avg"}, {"exp_avg_sq"}};

  template <class T>
  struct Factors {
    T weight_decay, shrink, old_mean, new_mean, old_square, new_square, eps;
    T mean_size;   ///< factor of m in the step if r <= 5, else 0
    T ratio_size;  ///< factor of m / (sqrt(v) + eps) in the step if r > 5, else 0
  };
  static Factors<double> factors(const Options& o, int64_t step) {
    const auto [beta1, beta2] = o.betas;
    const auto t = static_cast<double>(step);
    const double rest1 = 1 - std::pow(beta1, t), rest2 = 1 - std::pow(beta2, t);
    const double limit = 2 / (1 - beta2) - 1, length = limit - 2 * t * (1 - rest2) / rest2;
    const bool is_adaptive = length > 5;
    const double size =
        is_adaptive ? o.lr / rest1 *
                          std::sqrt((length - 4) * (length - 2) * limit * rest2 / ((limit - 4) * (limit - 2) * length))
                    : o.lr / rest1;
    return {.weight_decay = o.weight_decay,
            .shrink = 1 - o.lr * o.weight_decay,
            .old_mean = beta1,
            .new_mean = 1 - beta1,
            .old_square = beta2,
            .new_square = 1 - beta2,
            .eps = o.eps,
            .mean_size = is_adaptive ? 0 : size,
            .ratio_size = is_adaptive ? size : 0};
  }

  static std::array<bool, 2> cases(const Options& o, bool) { return {o.weight_decay != 0, o.decoupled_weight_decay}; }
  template <bool has_decay, bool is_decoupled, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& mean, T& square) {
    if constexpr (has_decay && is_decoupled) parameter *= f.shrink;
    if constexpr (has_decay && !is_decoupled) g += f.weight_decay * parameter;
    mean = f.old_mean * mean + f.new_mean * g;
    square = f.old_square * square + f.new_square * g * g;
    const T ratio = f.ratio_size == 0 ? T{0} : mean / (std::sqrt(square) + f.eps);  // avoids 0 / 0
    parameter -= f.mean_size * mean + f.ratio_size * ratio;
  }
};

TANDEM_DEFINE_OPTIMIZER(RAdam, RAdamRule)

}}}  // namespace tandem::v0::optim
