// The optimizers that the typed tests of all optimizers use.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/optim/adam.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>

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
            {.lr = 0.1, .momentum = 0.9, .nesterov = true},
            {.lr = 0.1, .weight_decay = 0.05}};
  }
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.momentum = -1}, "momentum is -1, expected a finite number >= 0"},
            {{.dampening = -std::numeric_limits<double>::infinity()}, "dampening is -inf, expected a finite number"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"},
            {{.nesterov = true}, "nesterov needs momentum > 0 and dampening 0, got 0 and 0"}};
  }
};

template <class OptimizerType, class OptionsType>
struct AdamFamilyCases {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  static std::vector<std::pair<Options, std::string>> wrong_options() {
    return {{{.lr = -1}, "lr is -1, expected a finite number >= 0"},
            {{.betas = {1, 0.5}}, "beta1 is 1, expected 0 <= beta1 < 1"},
            {{.betas = {0.5, -1}}, "beta2 is -1, expected 0 <= beta2 < 1"},
            {{.eps = -1}, "eps is -1, expected a finite number >= 0"},
            {{.weight_decay = -1}, "weight_decay is -1, expected a finite number >= 0"}};
  }
};

struct AdamCases : AdamFamilyCases<optim::Adam, optim::AdamOptions> {
  static constexpr const char* kName = "Adam";
  static std::vector<Options> options() {
    return {{}, {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05}, {.lr = 0.03, .betas = {0, 0.9}}};
  }
};

struct AdamWCases : AdamFamilyCases<optim::AdamW, optim::AdamWOptions> {
  static constexpr const char* kName = "AdamW";
  static std::vector<Options> options() {
    return {{}, {.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05}, {.lr = 0.1, .weight_decay = 0}};
  }
};

struct RmspropCases {
  using Optimizer = optim::RMSprop;
  using Options = optim::RMSpropOptions;
  static constexpr const char* kName = "RMSprop";
  static std::vector<Options> options() {
    return {{},
            {.lr = 0.1, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.05},
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

using AllOptimizers = ::testing::Types<SgdCases, AdamCases, AdamWCases, RmspropCases>;

/// Names the tests of AllOptimizers.
struct OptimizerName {
  template <class Cases>
  static std::string GetName(int) {
    return Cases::kName;
  }
};

}  // namespace tandem::testing
