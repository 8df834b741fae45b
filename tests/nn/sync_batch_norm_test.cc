// Thread ranks on CPUs or GPUs normalize parts of a batch; the results must equal those of one CPU rank with the whole
// batch.
#include <tandem/nn/sync_batch_norm.h>

#include <mutex>

#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem::testing { namespace {

constexpr int64_t kChannels = 5;
constexpr double kEps = 1e-2, kMomentum = 0.3;

/// Results of one training step of a batch norm.
struct Step {
  Tensor result, grad_input, grad_weight, grad_bias, mean, var;
};

/// A batch of `n` random images, optionally channels-last; `seed` determines the values.
Tensor images(int64_t n, uint64_t seed, bool channels_last) {
  const Tensor x = random_tensor({n, kChannels, 3, 7}, seed, kFloat64, -1, 5);
  return channels_last ? ops::channels_last(x) : x;
}

template <class Norm>
Step step(const Tensor& x, const Tensor& cotangent, Norm norm) {
  Step s;
  const Device device = x.device();
  s.mean = full({kChannels}, 0.5, {kFloat64, device});
  s.var = full({kChannels}, 2, {kFloat64, device});
  Tensor input = x.detach(), weight = random_tensor({kChannels}, 11, kFloat64).to(device),
         bias = random_tensor({kChannels}, 12, kFloat64).to(device);
  input.requires_grad_();
  weight.requires_grad_();
  bias.requires_grad_();
  const Tensor result = norm(input, s.mean, s.var, weight, bias);
  result.backward(cotangent);
  s.result = result.detach();  // without the node, whose group must be destroyed by its rank
  s.grad_input = input.grad();
  s.grad_weight = weight.grad();
  s.grad_bias = bias.grad();
  return s;
}

void expect_equals_joined_batch(const std::vector<int64_t>& sizes, bool channels_last) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const Tensor batch = images(total, 1, channels_last), cotangent = images(total, 2, channels_last);
  const Step whole = step(batch, cotangent,
                          [](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& w, const Tensor& b) {
                            return batch_norm(x, mean, var, w, b, true, kMomentum, kEps);
                          });
  std::vector<Step> parts(sizes.size());
  distributed::run_threads(rank_devices(static_cast<int>(sizes.size())), [&](distributed::Context& context) {
    const size_t rank = static_cast<size_t>(context.rank());
    const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + context.rank(), int64_t{0});
    const auto part = [&](const Tensor& t) {
      const Tensor here = t.slice(0, begin, begin + sizes[rank]).to(context.device());
      return channels_last ? ops::channels_last(here) : here;
    };
    parts[rank] =
        step(part(batch), part(cotangent),
             [&](const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& w, const Tensor& b) {
               return sync_batch_norm(x, mean, var, w, b, nn::exchange_over(context.group(), "bn"), kMomentum, kEps);
             });
  });
  Dense grad_weight = dense_zeros({kChannels}), grad_bias = dense_zeros({kChannels});
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    SCOPED_TRACE(str("rank ", rank, " of ", sizes.size()));
    const auto part = [&](const Tensor& t) { return dense(t.detach().slice(0, begin, begin + sizes[rank])); };
    EXPECT_TRUE(close(parts[rank].result, part(whole.result), 1e-12));
    EXPECT_TRUE(close(parts[rank].grad_input, part(whole.grad_input), 1e-12));
    EXPECT_TRUE(close(parts[rank].mean, dense(whole.mean), 1e-12));
    EXPECT_TRUE(close(parts[rank].var, dense(whole.var), 1e-12));
    for (int64_t c = 0; c < kChannels; ++c) {
      grad_weight[c] += dense(parts[rank].grad_weight)[c];
      grad_bias[c] += dense(parts[rank].grad_bias)[c];
    }
    begin += sizes[rank];
  }
  EXPECT_TRUE(close(whole.grad_weight, grad_weight, 1e-12));
  EXPECT_TRUE(close(whole.grad_bias, grad_bias, 1e-12));
}

TEST(SyncBatchNorm, MatchesBatchNormOnTheJoinedBatch) {
  for (const bool channels_last : {false, true}) {
    expect_equals_joined_batch({3}, channels_last);
    expect_equals_joined_batch({2, 2}, channels_last);
    expect_equals_joined_batch({1, 4}, channels_last);
    expect_equals_joined_batch({3, 1, 2}, channels_last);
    expect_equals_joined_batch({0, 3, 0, 1}, channels_last);
    if (test_device().is_cpu()) expect_equals_joined_batch({1, 2, 3, 1, 2, 3, 1}, channels_last);
  }
}

TEST(SyncBatchNorm, LargeOffsetsPerRankKeepAccuracy) {
  // The ranks' data have very different means, so combining the variances would lose digits without care.
  const int64_t n = 4;
  const Tensor batch = cat({images(n, 1, false) + 1e4, images(n, 2, false) - 1e4});
  const Tensor expected = batch_norm(batch, {}, {}, {}, {}, true, kMomentum, kEps);
  distributed::run_threads(rank_devices(2), [&](distributed::Context& context) {
    const int64_t begin = n * context.rank();
    const Tensor y = sync_batch_norm(batch.slice(0, begin, begin + n).to(context.device()), {}, {}, {}, {},
                                     nn::exchange_over(context.group(), "bn"), kMomentum, kEps);
    EXPECT_TRUE(close(y, dense(expected.slice(0, begin, begin + n)), 1e-12));
  });
}

TEST(SyncBatchNormLayer, MatchesBatchNorm2dOnJoinedBatch) {
  const Tensor batch = images(6, 1, true).to(kFloat32), residual = images(6, 2, true).to(kFloat32);
  const auto run = [](nn::BatchNormBase& layer, const Tensor& x, const Tensor& r) {
    std::vector<Tensor> results = {layer(x), layer.add_relu(x, r)};
    layer.eval();
    results.push_back(layer(x));
    results.push_back(layer.add_relu(x, r));
    return results;
  };
  for (const auto activation : {nn::Activation::kNone, nn::Activation::kRelu, nn::Activation::kRelu6}) {
    const nn::BatchNormOptions options = {.eps = kEps, .momentum = kMomentum, .activation = activation};
    nn::BatchNorm2d one(kChannels, options);
    one.weight.detach().fill_(7);
    const std::vector<Tensor> whole = run(one, batch, residual);
    distributed::run_threads(rank_devices(3), [&](distributed::Context& context) {
      const auto part = [&](const Tensor& t) { return t.slice(0, 2 * context.rank(), 2 * context.rank() + 2); };
      nn::SyncBatchNorm layer(kChannels, context.group(), options);
      layer.weight.detach().fill_(7);
      layer.to(context.device());
      const std::vector<Tensor> results =
          run(layer, part(batch).to(context.device()), part(residual).to(context.device()));
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(close(results[i], dense(part(whole[i])), 2e-6)) << static_cast<int>(activation) << ' ' << i;
      }
      EXPECT_TRUE(close(layer.running_mean, dense(one.running_mean), 1e-6));
      EXPECT_TRUE(close(layer.running_var, dense(one.running_var), 1e-6));
      EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 2);
      EXPECT_EQ(layer.extra_repr(), one.extra_repr());
    });
  }
}

TEST(SyncBatchNormLayer, TakesRowsAndTheOptionsOfBatchNorms) {
  const Tensor batch = random_tensor({6, kChannels}, 1, kFloat32);
  nn::BatchNorm1d one(kChannels, {.momentum = std::nullopt});
  one(batch * 3);
  const Tensor whole = one(batch);
  distributed::run_threads(rank_devices(3), [&](distributed::Context& context) {
    const Tensor part = batch.slice(0, 2 * context.rank(), 2 * context.rank() + 2).to(context.device());
    nn::SyncBatchNorm layer(kChannels, context.group(), {.momentum = std::nullopt});
    layer.to(context.device());
    layer(part * 3);
    EXPECT_TRUE(close(layer(part), dense(whole.slice(0, 2 * context.rank(), 2 * context.rank() + 2)), 2e-6));
    EXPECT_TRUE(close(layer.running_mean, dense(one.running_mean), 1e-6));
    EXPECT_TRUE(close(layer.running_var, dense(one.running_var), 1e-6));
    nn::SyncBatchNorm stateless(kChannels, context.group(), {.track_running_stats = false});
    stateless.to(context.device());
    EXPECT_TRUE(close(stateless(part), dense(whole.slice(0, 2 * context.rank(), 2 * context.rank() + 2)), 2e-6));
    EXPECT_FALSE(stateless.num_batches_tracked.defined());
    EXPECT_ERROR(ShapeError, layer(zeros({3})),
                 "SyncBatchNorm: input is float32 [3] on cpu, expected [N, C] or [N, C, ...]\n  in SyncBatchNorm");
  });
}

TEST(SyncBatchNormLayer, InvalidUseIsRejectedWithMessages) {
  EXPECT_ERROR(ValueError, nn::SyncBatchNorm(3, nullptr), "SyncBatchNorm: group is null");
  EXPECT_ERROR(ValueError, nn::SyncBatchNorm(0, nullptr), "SyncBatchNorm: num_features is 0, expected at least 1");
  EXPECT_ERROR(ValueError, nn::exchange_over(nullptr, "bn"), "exchange_over: group is null");
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  std::mutex mutex;
  distributed::run_threads(2, [&](distributed::Context& context) {
    nn::Module root;
    auto& layer = root.add<nn::SyncBatchNorm>("bn", 3, context.group());
    const Tensor input = zeros({2, 3, 1, 1}), residual = zeros({2, 3, 1, 1}, {kFloat32, Device("cpu:1")});
    const std::string other_device = error_text<DeviceError>([&] { layer.add_relu(input, residual); });
    const int64_t counted = layer.num_batches_tracked.item<int64_t>();
    const auto exchange = nn::exchange_over(context.group(), "bn");
    const std::string too_few = error_text<ShapeError>([&] {
      sync_batch_norm(zeros({context.rank(), 3}), {}, {}, {}, {}, exchange);
    });
    Tensor x = zeros({2, 3}, {kFloat64}).requires_grad_();
    const Tensor y = sync_batch_norm(x, {}, {}, {}, {}, exchange);
    const std::string recorded = error_text<StateError>([&] { y.backward(ones({2, 3}, {kFloat64}), false, true); });
    const std::lock_guard lock(mutex);
    EXPECT_EQ(other_device,
              "SyncBatchNorm: the residual (float32 [2, 3, 1, 1] on cpu:1) and the input (float32 [2, 3, 1, 1] on cpu) "
              "are on "
              "different devices; move it with residual.to(cpu)\n"
              "  in SyncBatchNorm 'bn'");
    EXPECT_EQ(counted, 0);
    EXPECT_EQ(layer.running_mean.version(), 0u);
    EXPECT_EQ(too_few, "sync_batch_norm: training needs at least two values per channel, all ranks together have 1");
    EXPECT_EQ(recorded, "sync_batch_norm: its backward cannot be recorded (create_graph)");
  });
}

}}  // namespace tandem::testing
