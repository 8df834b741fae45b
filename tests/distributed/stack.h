// A model of blocks for tests of Shard::kParameters, and its training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/nn/checkpoint.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module_list.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/tests/distributed/sharded_training.h>

namespace tandem::distributed {

inline constexpr int64_t kWidth = 6;

struct Block : nn::Layer {
  nn::Linear& fc;
  Tensor& scale;       ///< used after `fc`, which may be a unit of its own
  bool fails = false;  ///< throw in forward
  bool checkpoints = false, scales = true;
  explicit Block(int64_t width)
      : fc(add<nn::Linear>("fc", width, width)), scale(add_parameter("scale", full({width}, 1.5))) {}
  Tensor forward(const Tensor& input) override {
    if (fails) throw ValueError("thrown by a block");
    const auto f = [this](const Tensor& x) { return scales ? mul(tanh(fc(x)), scale) : tanh(fc(x)); };
    return checkpoints ? nn::checkpoint(f, input) : f(input);
  }
};

/// Blocks between a layer that is used at both ends.
struct Stack : nn::Layer {
  nn::Linear& ends;
  nn::ModuleList<Block>& blocks;
  std::vector<int64_t> order;  ///< of the blocks
  explicit Stack(int num_blocks, int64_t width = kWidth)
      : ends(add<nn::Linear>("ends", width, width)), blocks(add<nn::ModuleList<Block>>("blocks")) {
    for (int i = 0; i < num_blocks; ++i) {
      blocks.append(std::make_unique<Block>(width));
      order.push_back(i);
    }
  }
  Tensor forward(const Tensor& input) override {
    Tensor x = ends(input);
    for (const int64_t i : order) x = x + blocks[i](x);
    return ends(x);
  }
};

using Ddp = DistributedDataParallel<Stack>;
using Optimizer = std::unique_ptr<optim::Optimizer>;

inline std::unique_ptr<Stack> make_stack(Context& context, int num_blocks = 3) {
  manual_seed(1);
  auto model = std::make_unique<Stack>(num_blocks);
  model->to(context.device());
  return model;
}

inline Tensor input_of(Context& context, int step) {
  const auto seed = static_cast<uint64_t>(10 * step + context.rank());
  return values({5, kWidth}, seed).to(kFloat32).to(context.device());
}

inline std::vector<double> values_of(Ddp& ddp) {
  const HookHandle whole = ddp.gathered();
  std::vector<double> result;
  for (const Tensor& p : ddp.parameters()) {
    for (const double value : p.detach().to(kFloat64).to_vector<double>()) result.push_back(value);
  }
  return result;
}

/// The parameters after steps with `loss`, which gets the model and the step.
inline std::vector<double> train(Context& context, ReducerOptions options, const std::function<Tensor(Ddp&, int)>& loss,
                                 int steps = 4) {
  const auto model = make_stack(context);
  optim::AdamW before(model->parameters(), {.lr = 0.01});
  Ddp ddp(*model, context.group(), std::move(options));
  optim::AdamW after(model->parameters(), {.lr = 0.01});
  for (int step = 0; step < steps; ++step) {
    optim::AdamW& adam = context.world_size() == 2 ? before : after;  // it may be created at either time
    adam.zero_grad();
    loss(ddp, step).backward();
    adam.step();
  }
  return values_of(ddp);
}

inline Tensor simple_loss(Ddp& ddp, Context& context, int step) { return ddp(input_of(context, step)).square().mean(); }

inline const ReducerOptions kUnits = {.shard = Shard::kParameters};

}  // namespace tandem::distributed
