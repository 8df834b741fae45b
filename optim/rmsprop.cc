#include <tandem/optim/rmsprop.h>

#include <cmath>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct RmspropRule {
  using Options = RMSpropOptions;
  static constexpr const char* kName = "RMSprop";
  static constexpr bool kCountsSteps = true;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},
            {"alpha", &o.alpha, in_zero_one},
            {"eps", &o.eps, not_negative},
            {"weight_decay", &o.weight_decay, not_negative},
            {"momentum", &o.momentum, not_negative},
            {"centered", &o.centered},
            {"maximize", &o.maximize}};
  }

  static constexpr StateTensor<Options> kState[] = {
      {"square_avg"},
      {"momentum_buffer", [](const Options& o) { return o.momentum != 0; }},
      {"grad_avg", [](const Options& o) { return o.centered; }}};

  template <class T>
  struct Factors {
    T lr, alpha, rest, eps, weight_decay, momentum;
  };
  static Factors<double> factors(const Options& o, int64_t) {
    return {o.lr, o.alpha, 1 - o.alpha, o.eps, o.weight_decay, o.momentum};
  }

  static std::array<bool, 3> cases(const Options& o, bool) {
    return {o.weight_decay != 0, o.momentum != 0, o.centered};
  }
  template <bool has_decay, bool has_momentum, bool is_centered, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& square, T& buffer, T& mean) {
    if constexpr (has_decay) g += f.weight_decay * parameter;
    square = f.alpha * square + f.rest * g * g;
    T variance = square;
    if constexpr (is_centered) {
      mean = f.alpha * mean + f.rest * g;
      variance -= mean * mean;
    }
    T direction = g / (std::sqrt(variance) + f.eps);
    if constexpr (has_momentum) direction = buffer = f.momentum * buffer + direction;
    parameter -= f.lr * direction;
  }
};

TANDEM_DEFINE_OPTIMIZER(RMSprop, RmspropRule)

}}}  // namespace tandem::v0::optim
