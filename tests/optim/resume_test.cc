// An optimizer and its schedule that are loaded from a file continue with the same bits.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/io/state_file.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/schedules.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/optim/gradients.h>

namespace td = tandem;
using td::testing::parameter;
using td::testing::set_gradient;

namespace {

/// An optimizer with a schedule and two groups of parameters; one parameter never has a gradient.
template <class Optimizer, class Options>
struct Training {
  Training(const Options& first, const Options& second)
      : optimizer({{.parameters = {a, unused}, .options = first}, {.parameters = {b}, .options = second}}),
        schedule(optimizer, {.warmup_steps = 3, .total_steps = 11, .min_factor = 0.05}) {}

  void steps(int from, int to) {
    for (int step = from; step < to; ++step) {
      std::vector<float> values(33);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(static_cast<float>(step * 40) + static_cast<float>(i));
      set_gradient(a, td::from_vector<float>(values, {33}));
      set_gradient(b, td::full({3}, std::cos(step), {td::kFloat64}));
      optimizer.step();
      schedule.step();
    }
  }

  td::State state() const {
    td::State state;
    state.set("parameters.a", a.detach());
    state.set("parameters.b", b.detach());
    state.set("optimizer", optimizer.state_dict());
    state.set("schedule", schedule.state_dict());
    return state;
  }

  void load(const td::State& state) {
    td::primitives::copy(state.get<td::Tensor>("parameters.a"), a);
    td::primitives::copy(state.get<td::Tensor>("parameters.b"), b);
    optimizer.load_state_dict(state.get<td::State>("optimizer"));
    schedule.load_state_dict(state.get<td::State>("schedule"));
  }

  td::Tensor a = parameter<float>(std::vector<float>(33, 0.7f), {33});
  td::Tensor b = parameter<double>({1, -2, 3}, {3});
  td::Tensor unused = parameter<float>({5}, {1});
  Optimizer optimizer;
  td::optim::CosineWarmupLR schedule;
};

template <class Optimizer, class Options>
void expect_resumes(const Options& first, const Options& second, const std::string& name) {
  Training<Optimizer, Options> whole(first, second);
  whole.steps(0, 9);
  Training<Optimizer, Options> begun(first, second);
  begun.steps(0, 4);
  const std::string path = ::testing::TempDir() + name + ".safetensors";
  td::io::save_state(path, begun.state());

  Training<Optimizer, Options> resumed(Options{}, Options{});
  resumed.load(td::io::load_state(path));
  resumed.steps(4, 9);
  EXPECT_EQ(resumed.a.template to_vector<float>(), whole.a.template to_vector<float>());
  EXPECT_EQ(resumed.b.template to_vector<double>(), whole.b.template to_vector<double>());
  EXPECT_EQ(resumed.schedule.last_lr(), whole.schedule.last_lr());
  EXPECT_EQ(resumed.optimizer.lr(1), whole.optimizer.lr(1));
  EXPECT_NE(begun.a.template to_vector<float>(), whole.a.template to_vector<float>());
}

TEST(OptimizerResume, AdamWContinuesBitExactly) {
  expect_resumes<td::optim::AdamW>(td::optim::AdamWOptions{.lr = 0.013, .betas = {0.8, 0.93}, .weight_decay = 0.3},
                                   td::optim::AdamWOptions{.lr = 0.1, .eps = 1e-3, .weight_decay = 0}, "adamw");
}

TEST(OptimizerResume, AdamContinuesBitExactly) {
  expect_resumes<td::optim::Adam>(td::optim::AdamOptions{.lr = 0.013, .weight_decay = 0.3},
                                  td::optim::AdamOptions{.lr = 0.1, .betas = {0.1, 0.2}}, "adam");
}

TEST(OptimizerResume, SgdContinuesBitExactly) {
  expect_resumes<td::optim::SGD>(td::optim::SGDOptions{.lr = 0.013, .momentum = 0.9, .dampening = 0.25},
                                 td::optim::SGDOptions{.lr = 0.1, .momentum = 0.5, .nesterov = true}, "sgd");
}

}  // namespace
