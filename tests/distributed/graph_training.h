// A small model that is trained by the ranks of a job, for tests of cuda::Graph.
#pragma once

#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <tandem/distributed/context.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/small_net.h>

namespace tandem::distributed {

inline std::vector<Device> gpus(int count) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) all.push_back(Device::cuda(i));
  return all;
}

inline std::vector<int> all_ranks(const Context& context) {
  std::vector<int> all(static_cast<size_t>(context.world_size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

enum class Variant { kPlain, kClipped, kAccumulated, kScaled };

/// A model with its optimizer, and a batch in fixed memory.
struct Training {
  static constexpr int64_t kBatch = 6;

  Variant variant;
  Net net;
  GradientReducer reducer;
  optim::Adam optimizer;
  optim::GradScaler scaler{{.init_scale = 256, .growth_interval = 2}};
  std::vector<Tensor> x, y;
  Tensor loss, norm;

  Training(Variant kind, Device device, const std::shared_ptr<ProcessGroup>& group)
      : variant(kind),
        net(1 + 10 * static_cast<uint64_t>(group->rank()), device, kFloat32),
        reducer(net.named(), {}, group, {.buckets = {64, 64, 64}}),
        optimizer(net.parameters(), {.lr = 0.1}) {
    for (int i = 0; i < (kind == Variant::kAccumulated ? 3 : 1); ++i) {
      x.push_back(empty({kBatch, 5}, {kFloat32, device}));
      y.push_back(empty({kBatch}, {kInt64, device}));
    }
  }

  /// The batch and learning rate of a step. Loss scaling: the gradients of rank 1 overflow in steps 4 and 5.
  void prepare(int rank, int step) {
    for (size_t i = 0; i < x.size(); ++i) {
      const auto seed = static_cast<uint64_t>(1000 * step + 10 * rank) + i;
      Tensor batch = values(x[i].shape(), seed).to(kFloat32);
      if (variant == Variant::kScaled && rank == 1 && (step == 4 || step == 5))
        batch.data<float>()[3] = std::numeric_limits<float>::infinity();
      x[i].copy_(batch.to(x[i].device()));
      std::vector<int64_t> labels;
      for (int64_t item = 0; item < kBatch; ++item) labels.push_back((item * item + step + rank) % 3);
      y[i].copy_(from_vector(labels, {kBatch}).to(y[i].device()));
    }
    optimizer.set_lr(0.1 / (step + 1));
  }

  void step() {
    optimizer.zero_grad();
    if (variant == Variant::kAccumulated) {
      const HookHandle local = reducer.no_sync();
      for (size_t i = 0; i + 1 < x.size(); ++i) net.loss(x[i], y[i]).backward();
    }
    loss = net.loss(x.back(), y.back());
    if (variant != Variant::kScaled) {
      loss.backward();
      if (variant == Variant::kClipped) norm = optim::clip_grad_norm_(net.parameters(), 0.05);
      return optimizer.step();
    }
    scaler.backward(loss);
    scaler.unscale_(optimizer);
    norm = optim::clip_grad_norm_(net.parameters(), 0.05);
    scaler.step(optimizer);
    scaler.update();
  }

  /// Bits of all numbers after a step.
  void append(std::vector<double>& result) const {
    const auto add = [&](const Tensor& tensor) {
      for (const double value : tensor.to(kFloat64).to_vector<double>()) result.push_back(value == value ? value : -7);
    };
    for (const Tensor& p : net.parameters()) {
      add(p.detach());
      add(p.grad());
    }
    add(loss.detach());
    if (norm.defined()) add(norm);
  }
};

}  // namespace tandem::distributed
