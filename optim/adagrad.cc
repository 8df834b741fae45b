#include <tandem/optim/adagrad.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct AdagradRule {
  using Options = AdagradOptions;
  static constexpr const char* kName = "Adagrad";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"lr_decay", &o.lr_decay, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"initial_accumulator_value", &o.initial_accumulator_value, not_negative},
            {"eps", &o.eps, not_negative},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"sum"}};

  template <class T>
  struct Factors {
    T lr, weight_decay, initial, eps;
  };
  static Factors<double> factors(const Options& o, int64_t step) {
    return {o.lr / (1 + static_cast<double>(step - 1) * o.lr_decay), o.weight_decay, o.initial_accumulator_value,
            o.eps};
  }

  static std::array<bool, 2> cases(const Options& o, bool is_first) { return {o.weight_decay != 0, is_first}; }
  template <bool has_decay, bool is_first, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& sum) {
    if constexpr (has_decay) g += f.weight_decay * parameter;
    sum = (is_first ? f.initial : sum) + g * g;
    parameter -= f.lr * (g / (std::sqrt(sum) + f.eps));
  }
};

TANDEM_DEFINE_OPTIMIZER(Adagrad, AdagradRule)

}}}  // namespace tandem::v0::optim
