// A small network with data and training, on one process and on the ranks of a job.
#pragma once

#include <utility>
#include <vector>

#include <tandem/distributed/context.h>
#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/view.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::distributed {

inline constexpr int64_t kItems = 7 * 4 * 9;  // divisible by three times every tested world size

/// Values that depend on the seed alone.
inline Tensor values(const Shape& shape, uint64_t seed) {
  const int64_t n = num_elements(shape);
  const PhiloxState stream = Generator(seed).reserve(n);
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) {
    v.push_back(stream.block(static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)] * 0x1p-32 - 0.5);
  }
  return from_vector(v, shape);
}

/// A network of two layers.
struct Net {
  Tensor w1, b1, w2, b2;
  explicit Net(uint64_t seed, Device device = {}, DType dtype = kFloat64)
      : w1(values({8, 5}, seed).to(device).to(dtype)),
        b1(values({8}, seed + 1).to(device).to(dtype)),
        w2(values({3, 8}, seed + 2).to(device).to(dtype)),
        b2(values({3}, seed + 3).to(device).to(dtype)) {
    for (Tensor* p : {&w1, &b1, &w2, &b2}) p->requires_grad_();
  }
  NamedTensors named() const { return {{"fc1.weight", w1}, {"fc1.bias", b1}, {"fc2.weight", w2}, {"fc2.bias", b2}}; }
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }
  Tensor loss(const Tensor& x, const Tensor& labels) const {
    return cross_entropy(linear(relu(linear(x, w1, b1)), w2, b2), labels);
  }
};

inline Tensor inputs() { return values({kItems, 5}, 100); }
inline Tensor labels() {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < kItems; ++i) v.push_back(i * i % 3);
  return from_vector(v, {kItems});
}

inline std::vector<double> all_values(const Net& net) {
  std::vector<double> all;
  for (const Tensor& p : net.parameters()) {
    for (const double v : p.detach().to(kFloat64).to_vector<double>()) all.push_back(v);
  }
  return all;
}

inline constexpr optim::SGDOptions kSgd = {.lr = 0.3, .momentum = 0.9, .weight_decay = 0.01};

/// The parameters after a few steps of one process on the whole batch.
inline std::vector<double> joined_batch(int steps) {
  const Net net(1);
  optim::SGD sgd(net.parameters(), kSgd);
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    net.loss(inputs(), labels()).backward();
    sgd.step();
  }
  return all_values(net);
}

/// The parameters after the same steps of this rank on its part of the batch.
inline std::vector<double> part_of_batch(Context& context, int steps, BucketSizes sizes, CommHooks hooks,
                                         Device device) {
  const Net net(1 + 10 * static_cast<uint64_t>(context.rank()), device);  // rank 0's values must be used
  GradientReducer reducer(net.named(), {}, context.group(), {.buckets = sizes, .hooks = std::move(hooks)});
  optim::SGD sgd(net.parameters(), kSgd);
  const int64_t share = kItems / context.world_size();
  const Tensor x = inputs().slice(0, context.rank() * share, (context.rank() + 1) * share).to(device);
  const Tensor y = labels().slice(0, context.rank() * share, (context.rank() + 1) * share).contiguous().to(device);
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    net.loss(x, y).backward();
    sgd.step();
  }
  return all_values(net);
}

inline std::vector<double> part_of_batch(Context& context, int steps, BucketSizes sizes, CommHooks hooks = {}) {
  return part_of_batch(context, steps, sizes, std::move(hooks), context.device());
}

}  // namespace tandem::distributed
