// An optimizer of a program that uses tandem.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <tandem/optim/define_optimizer.h>

namespace extension {

/// Options of SignSGD.
struct SignSGDOptions {
  double lr = 1e-2;       ///< learning rate
  double momentum = 0;    ///< share of the momentum buffer that a step keeps
  bool maximize = false;  ///< uses -g instead of g
};

/// b = momentum b + g, p = p - lr sign(b). J. Bernstein et al., "signSGD: compressed optimisation for non-convex
/// problems", ICML 2018.
class SignSGD : public tandem::optim::GroupedOptimizer<SignSGDOptions> {
 public:
  explicit SignSGD(std::vector<tandem::Tensor> parameters, SignSGDOptions options = {});
  explicit SignSGD(std::vector<tandem::optim::ParameterGroup<SignSGDOptions>> groups);
};

struct SignSGDRule {
  using Options = SignSGDOptions;
  static constexpr const char* kName = "SignSGD";
  static constexpr bool kCountsSteps = false;

  static std::vector<tandem::optim::Option> options(Options& o) {
    return {{"lr", &o.lr, tandem::optim::not_negative},
            {"momentum", &o.momentum, tandem::optim::in_zero_one},
            {"maximize", &o.maximize}};
  }
  static constexpr tandem::optim::StateTensor<Options> kState[] = {{"momentum_buffer"}};

  template <class T>
  struct Factors {
    T lr, momentum;
  };
  static Factors<double> factors(const Options& o, int64_t) { return {o.lr, o.momentum}; }

  static std::array<bool, 0> cases(const Options&, bool) { return {}; }
  template <class T>
  TANDEM_HOST_DEVICE static void update(const Factors<T>& f, T g, T& parameter, T& buffer) {
    buffer = f.momentum * buffer + g;
    parameter -= buffer > 0 ? f.lr : buffer < 0 ? -f.lr : 0;
  }
};

}  // namespace extension
