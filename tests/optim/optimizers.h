// The optimizers that the typed tests of all optimizers use.
#pragma once

#include <tandem/optim/adadelta.h>
#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/adamax.h>
#include <tandem/optim/lion.h>
#include <tandem/optim/nadam.h>
#include <tandem/optim/radam.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing {

// Each optimizer has the cases of its file tests/fixtures/<kName>.safetensors, which together run all of its kernels
// (the first case has the default options), and wrong options with their error texts.

struct SgdCases {
  using Optimizer = optim::SGD;
  using Options = optim::SGDOptions;
  static constexpr const char* kName = "SGD";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .momentum = 0.9},
            {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
            {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
            {.lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true},
            {.lr = 0.1, .weight_decay = 0.05}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.momentum = -1}, "momentum is -1, expected a finite number >= 0"},
            {{.dampening = -std::numeric_limits<double>::infinity()}, "dampening is -inf, expected a finite number"},
            {{.weight_decay = std::numeric_limits<double>::infinity()},
             "weight_decay is inf, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"},
            {{.nesterov = true}, "nesterov needs momentum > 0 and dampening 0, got 0 and 0"},
            {{.momentum = 0.9, .dampening = 0.5, .nesterov = true},
             "nesterov needs momentum > 0 and dampening 0, got 0.9 and 0.5"}};
  }
};

template <class OptimizerType, class OptionsType>
struct AdamFamilyCases {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.betas = {1, 0.5}}, "beta1 is 1, expected 0 <= beta1 < 1"},
            {{.betas = {0.5, std::nan("")}}, "beta2 is nan, expected 0 <= beta2 < 1"},
            {{.eps = -1}, "eps is -1, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"}};
  }
};

struct AdamCases : AdamFamilyCases<optim::Adam, optim::AdamOptions> {
  static constexpr const char* kName = "Adam";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05},
            {.lr = 0.03, .betas = {0, 0.9}, .maximize = true},
            {.lr = 0.03, .amsgrad = true},
            {.lr = 0.1, .weight_decay = 0.05, .amsgrad = true}};
  }
};

struct AdamWCases : AdamFamilyCases<optim::AdamW, optim::AdamWOptions> {
  static constexpr const char* kName = "AdamW";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05},
            {.lr = 0.1, .weight_decay = 0, .maximize = true},
            {.lr = 0.03, .weight_decay = 0, .amsgrad = true},
            {.lr = 0.1, .weight_decay = 0.05, .amsgrad = true}};
  }
};

struct RmspropCases {
  using Optimizer = optim::RMSprop;
  using Options = optim::RMSpropOptions;
  static constexpr const char* kName = "RMSprop";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.05, .maximize = true},
            {.momentum = 0.9},
            {.lr = 0.03, .momentum = 0.5, .centered = true},
            {.weight_decay = 0.1, .centered = true}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.alpha = 1}, "alpha is 1, expected 0 <= alpha < 1"},
            {{.eps = -1}, "eps is -1, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"},
            {{.momentum = -1}, "momentum is -1, expected a finite number >= 0"}};
  }
};

struct AdagradCases {
  using Optimizer = optim::Adagrad;
  using Options = optim::AdagradOptions;
  static constexpr const char* kName = "Adagrad";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .lr_decay = 0.01, .weight_decay = 0.05, .initial_accumulator_value = 0.3},
            {.lr = 0.1, .eps = 1e-3, .maximize = true}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.lr_decay = -1}, "lr_decay is -1, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"},
            {{.initial_accumulator_value = -1}, "initial_accumulator_value is -1, expected a finite number >= 0"},
            {{.eps = -1}, "eps is -1, expected a finite number >= 0"}};
  }
};

struct AdadeltaCases {
  using Optimizer = optim::Adadelta;
  using Options = optim::AdadeltaOptions;
  static constexpr const char* kName = "Adadelta";
  static std::vector<Options> options() {
    return {{}, {.lr = 0.5, .rho = 0.8, .eps = 1e-3, .weight_decay = 0.05, .maximize = true}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.rho = 1}, "rho is 1, expected 0 <= rho < 1"},
            {{.eps = -1}, "eps is -1, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"}};
  }
};

struct AdamaxCases : AdamFamilyCases<optim::Adamax, optim::AdamaxOptions> {
  static constexpr const char* kName = "Adamax";
  static std::vector<Options> options() {
    return {{}, {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05, .maximize = true}};
  }
};

struct NAdamCases : AdamFamilyCases<optim::NAdam, optim::NAdamOptions> {
  static constexpr const char* kName = "NAdam";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05, .momentum_decay = 0.1},
            {.weight_decay = 0.1, .momentum_decay = 0, .decoupled_weight_decay = true, .maximize = true}};
  }
};

struct RAdamCases : AdamFamilyCases<optim::RAdam, optim::RAdamOptions> {
  static constexpr const char* kName = "RAdam";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05},
            {.weight_decay = 0.1, .decoupled_weight_decay = true, .maximize = true}};
  }
};

struct LionCases {
  using Optimizer = optim::Lion;
  using Options = optim::LionOptions;
  static constexpr const char* kName = "Lion";
  static std::vector<Options> options() {
    return {{}, {.lr = 0.01, .betas = {0.8, 0.95}, .weight_decay = 0.1, .maximize = true}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.betas = {1, 0.5}}, "beta1 is 1, expected 0 <= beta1 < 1"},
            {{.betas = {0.5, -1}}, "beta2 is -1, expected 0 <= beta2 < 1"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"}};
  }
};

using AllOptimizers = ::testing::Types<SgdCases, AdamCases, AdamWCases, RmspropCases, AdagradCases, AdadeltaCases,
                                       AdamaxCases, NAdamCases, RAdamCases, LionCases>;

/// Names the tests of AllOptimizers.
struct OptimizerName {
  template <class Cases>
  static std::string GetName(int) {
    return Cases::kName;
  }
};

}  // namespace tandem::testing
