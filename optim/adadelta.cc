#include <tandem/optim/adadelta.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct AdadeltaRule {
  using Options = AdadeltaOptions;
  static constexpr const char* kName = "Adadelta";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"rho", &o.rho, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {{"square_avg"}, {"acc_delta"}};

  template <class T>
  struct Factors {
    T lr, rho, rest, eps, weight_decay;
  };
  static Factors<double> factors(const Options& o, int64_t) { return {o.lr, o.rho, 1 - o.rho, o.eps, o.weight_decay}; }

  static std::array<bool, 1> cases(const Options& o, bool) { return {o.weight_decay != 0}; }
  template <bool has_decay, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& square, T& delta_square) {
    if constexpr (has_decay) g += f.weight_decay * parameter;
    square = f.rho * square + f.rest * g * g;
    const T delta = std::sqrt(delta_square + f.eps) / std::sqrt(square + f.eps) * g;
    delta_square = f.rho * delta_square + f.rest * delta * delta;
    parameter -= f.lr * delta;
  }
};

TANDEM_DEFINE_OPTIMIZER(Adadelta, AdadeltaRule)

}}}  // namespace tandem::v0::optim
