#include <tandem/optim/sgd.h>

#include <tandem/optim/define_optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct SgdRule {
  using Options = SGDOptions;
  static constexpr const char* kName = "SGD";
  static constexpr bool kCountsSteps = false;

  static std::vector<Option> options(Options& o) {
    return {{"lr", &o.lr, not_negative},         {"momentum", &o.momentum, not_negative},
            {"dampening", &o.dampening, finite}, {"weight_decay", &o.weight_decay, not_negative},
            {"nesterov", &o.nesterov},           {"maximize", &o.maximize}};
  }
  static std::string problem(const Options& o) {
    if (!o.nesterov || (o.momentum != 0 && o.dampening == 0)) return "";
    return str("nesterov needs momentum > 0 and dampening 0, got ", o.momentum, " and ", o.dampening);
  }

  static constexpr StateTensor<Options> kState[] = {
      {"momentum_buffer", [](const Options& o) { return o.momentum != 0; }}};

  template <class T>
  struct Factors {
    T lr, momentum, share, decay;
  };
  static Factors<double> factors(const Options& o, int64_t) {
    return {o.lr, o.momentum, 1 - o.dampening, o.weight_decay};
  }

  static std::array<bool, 4> cases(const Options& o, bool is_first) {
    return {o.weight_decay != 0, o.momentum != 0, is_first, o.nesterov};
  }
  template <bool has_decay, bool has_momentum, bool is_first, bool is_nesterov, class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T direction, T& parameter, T& buffer) {
    if constexpr (has_decay) direction += f.decay * parameter;
    if constexpr (has_momentum) {
      const T next = is_first ? direction : f.momentum * buffer + f.share * direction;
      buffer = next;
      direction = is_nesterov ? direction + f.momentum * next : next;
    }
    parameter -= f.lr * direction;
  }
};

TANDEM_DEFINE_OPTIMIZER(SGD, SgdRule)

}}}  // namespace tandem::v0::optim
