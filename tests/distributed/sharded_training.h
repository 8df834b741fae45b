// Trainings whose ranks divide the optimizer's state, the gradients and the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/module_observer.h>
#include <tandem/distributed/launch.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::distributed {

inline constexpr Shard kLevels[] = {Shard::kOptimizer, Shard::kGradients, Shard::kParameters};
inline constexpr Shard kAllLevels[] = {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kParameters};

/// A copy of the state on the CPU. Loading a tensor of another rank's GPU would make the streams of both GPUs wait for
/// one another.
inline State copy_of(const State& state) {
  State copy;
  for (const auto& [name, value] : state.entries()) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      copy.set(name, tensor->to(Device("cpu")).clone());
    } else if (const auto* nested = std::get_if<std::shared_ptr<State>>(&value)) {
      copy.set(name, copy_of(**nested));
    } else {
      copy.set(name, value);
    }
  }
  return copy;
}

/// One training of Net on the ranks of a group; all of its ranks make equal steps. With kParameters "fc1" is a unit,
/// "fc2" another one without its bias, which is of the root unit.
struct Training {
  Context& context;
  Net net;
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor x, y;

  Training(Context& ranks, ReducerOptions options, DType dtype = kFloat64,
           const std::function<void(Net&)>& prepare = nullptr)
      : context(ranks), net(1, ranks.device(), dtype) {
    if (prepare) prepare(net);
    const int64_t share = kItems / 9 / context.world_size(), begin = context.rank() * share;
    x = inputs().slice(0, begin, begin + share).to(context.device()).to(dtype);
    y = labels().slice(0, begin, begin + share).contiguous().to(context.device());
    options.buckets = {64, 256, 64};  // several buckets
    const std::vector<std::string> units = {"fc1", "fc1", "fc2", ""};
    reducer =
        std::make_unique<GradientReducer>(net.named(), NamedTensors{}, context.group(), std::move(options), units);
  }
  /// f() as a call of the module of this unit.
  template <class F>
  auto in(const std::string& unit, F f) const {
    RefPtr<ModuleObserver> observer;
    for (const auto& [path, calls] : reducer->units()) observer = path == unit ? calls : observer;
    const ObservedCall call(observer);
    return f();
  }
  Tensor first(const Tensor& input) const {
    return in("fc1", [&] { return linear(input, net.w1, net.b1); });
  }
  Tensor loss(const Tensor& input, const Tensor& expected) const {
    return in("", [&] {
      const Tensor h = relu(first(input));
      return in("fc2", [&] { return cross_entropy(linear(h, net.w2, net.b2), expected); });
    });
  }
  Tensor loss() const { return loss(x, y); }
  std::vector<double> values() const {
    const HookHandle whole = reducer->gathered();
    return all_values(net);
  }
};

inline std::unique_ptr<optim::Optimizer> sgd(const Net& net) {
  return std::make_unique<optim::SGD>(net.parameters(), kSgd);
}
inline std::unique_ptr<optim::Optimizer> adamw(const Net& net) {
  return std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
}

inline void plain_step(Training& t) {
  t.optimizer->zero_grad();
  t.loss().backward();
  t.optimizer->step();
}

/// Numbers of ranks; few on emulated GPUs, which are slow.
inline std::vector<int> worlds() {
  return testing::test_device().is_cpu() ? std::vector<int>{1, 2, 3, 8} : std::vector<int>{2, 3};
}

}  // namespace tandem::distributed
