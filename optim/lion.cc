#include <tandem/optim/lion.h>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct LionRule {
  using Options = LionOptions;
  static constexpr const char* kName = "Lion";
  static constexpr bool kCountsSteps = false;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"beta1", &o.betas.first, in_zero_one},
            {"beta2", &o.betas.second, in_zero_one},
            {"weight_decay", &o.weight_decay, not_negative},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"exp_avg"}};

  template <class T>
  struct Factors {
    T lr, shrink, old_direction, new_direction, old_mean, new_mean;
  };
  static Factors<double> factors(const Options& o, int64_t) {
    const auto [beta1, beta2] = o.betas;
    return {o.lr, 1 - o.lr * o.weight_decay, beta1, 1 - beta1, beta2, 1 - beta2};
  }

  static std::array<bool, 1> cases(const Options& o, bool) { return {o.weight_decay != 0}; }
  template <bool has_decay, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& mean) {
    if constexpr (has_decay) parameter *= f.shrink;
    const T direction = f.old_direction * mean + f.new_direction * g;
    mean = f.old_mean * mean + f.new_mean * g;
    parameter -= direction > 0 ? f.lr : direction < 0 ? -f.lr : f.lr * direction;  // 0 or NaN
  }
};

TANDEM_DEFINE_OPTIMIZER(Lion, LionRule)

}}}  // namespace tandem::v0::optim
