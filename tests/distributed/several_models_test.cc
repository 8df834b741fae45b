// DistributedDataParallel in adversarial training, with gradient penalties and with checkpoints.
#include <tandem/distributed/distributed_data_parallel.h>

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/distributed/launch.h>
#include <tandem/nn/checkpoint.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/norm.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/distributed/small_net.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

constexpr int64_t kBatch = 12;  // of all ranks together
constexpr BucketSizes kTinyBuckets = {64, 64, 64};

/// A network of two layers, in float64.
struct Mlp : nn::Layer {
  Tensor& w1;
  Tensor& w2;
  Mlp(int64_t in, int64_t out, uint64_t seed)
      : w1(add_parameter("w1", values({8, in}, seed))), w2(add_parameter("w2", values({out, 8}, seed + 1))) {}
  Tensor forward(const Tensor& x) override { return matmul(tanh(matmul(x, w1.t())), w2.t()); }
};

/// This rank's rows of a tensor that is equal on all ranks.
Tensor own_rows(const Tensor& all, int rank, int world_size) {
  const int64_t share = all.size(0) / world_size;
  return all.slice(0, rank * share, (rank + 1) * share).contiguous();
}

using Model = std::function<Tensor(const Tensor&)>;

/// One process of adversarial training: the models as they are called, and how backward leaves out the discriminator.
struct Gan {
  Mlp generator{3, 5, 1};
  Mlp discriminator{5, 1, 10};
  Model generate = [this](const Tensor& z) { return generator(z); };
  Model discriminate = [this](const Tensor& x) { return discriminator(x); };
  std::function<HookHandle()> without_discriminator = [] { return HookHandle(); };
};

enum class Frozen { kNoSync, kRequiresGrad };

/// Steps of a GAN on rows [rank] of the data; all parameters afterwards.
std::vector<double> train(Gan& gan, int rank, int world_size, Frozen frozen) {
  optim::SGD generator_sgd(gan.generator.parameters(), {.lr = 0.1});
  optim::SGD discriminator_sgd(gan.discriminator.parameters(), {.lr = 0.1});
  for (uint64_t step = 0; step < 3; ++step) {
    const Tensor real = own_rows(values({kBatch, 5}, 100 + step), rank, world_size);
    const Tensor noise = own_rows(values({kBatch, 3}, 200 + step), rank, world_size);
    const Tensor ones = full({real.size(0), 1}, 1, {kFloat64}), no = zeros({real.size(0), 1}, {kFloat64});

    const Tensor fake = gan.generate(noise);
    discriminator_sgd.zero_grad();
    add(binary_cross_entropy_with_logits(gan.discriminate(real), ones),
        binary_cross_entropy_with_logits(gan.discriminate(fake.detach()), no))
        .backward();
    discriminator_sgd.step();

    generator_sgd.zero_grad();
    {
      HookHandle off;
      if (frozen == Frozen::kNoSync) {
        off = gan.without_discriminator();
      } else {
        for (Tensor parameter : gan.discriminator.parameters()) parameter.requires_grad_(false);
      }
      binary_cross_entropy_with_logits(gan.discriminate(fake), ones).backward();
    }
    for (Tensor parameter : gan.discriminator.parameters()) parameter.requires_grad_(true);
    generator_sgd.step();
  }
  std::vector<double> result;
  for (const Mlp* model : {&gan.generator, &gan.discriminator}) {
    for (const Tensor& parameter : model->parameters()) {
      for (const double value : parameter.to_vector<double>()) result.push_back(value);
    }
  }
  return result;
}

class AdversarialTraining : public ::testing::TestWithParam<std::tuple<int, Frozen>> {};

TEST_P(AdversarialTraining, RanksMatchOneProcessOnTheWholeBatch) {
  const auto [world, frozen] = GetParam();
  Gan alone;
  const std::vector<double> expected = train(alone, 0, 1, frozen);
  run_threads(world, [&](Context& context) {
    Gan gan;
    DistributedDataParallel generator(gan.generator, context.group(), {.buckets = kTinyBuckets});
    DistributedDataParallel discriminator(gan.discriminator, context.group(), {.buckets = kTinyBuckets});
    gan.generate = [&](const Tensor& z) { return generator(z); };
    gan.discriminate = [&](const Tensor& x) { return discriminator(x); };
    gan.without_discriminator = [&] { return discriminator.no_sync(); };
    const std::vector<double> got = train(gan, context.rank(), world, frozen);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12);
  });
}

INSTANTIATE_TEST_SUITE_P(, AdversarialTraining,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(Frozen::kNoSync, Frozen::kRequiresGrad)));

TEST(TwoModels, BothAreAveragedInOneBackward) {
  const Tensor x = values({kBatch, 3}, 5);
  Mlp first_alone(3, 5, 1), second_alone(5, 2, 10);
  mean(square(second_alone(first_alone(x)))).backward();
  for (const int world : {1, 2, 3}) {
    run_threads(world, [&](Context& context) {
      Mlp first(3, 5, 1), second(5, 2, 10);
      DistributedDataParallel first_ddp(first, context.group(), {.buckets = kTinyBuckets});
      DistributedDataParallel second_ddp(second, context.group(), {.buckets = kTinyBuckets});
      mean(square(second_ddp(first_ddp(own_rows(x, context.rank(), world))))).backward();
      for (const auto& [got, expected] : {std::pair<Tensor, Tensor>{first.w1, first_alone.w1},
                                          {first.w2, first_alone.w2},
                                          {second.w1, second_alone.w1},
                                          {second.w2, second_alone.w2}}) {
        const std::vector<double> a = got.grad().to_vector<double>(), b = expected.grad().to_vector<double>();
        for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
      }
    });
  }
}

/// WGAN-GP (Gulrajani et al., "Improved training of Wasserstein GANs", 2017): the loss of the critic.
Tensor critic_loss(const Model& critic, const Tensor& real, const Tensor& fake) {
  const Tensor mixed = add(mul(real, Scalar(0.25)), mul(fake, Scalar(0.75))).detach().requires_grad_();
  const Tensor gradient = grad({sum(critic(mixed))}, {mixed}, {}, {.create_graph = true})[0];
  const Tensor penalty = mean(square(sub(sqrt(sum(square(gradient), {1})), Scalar(1))));
  return add(sub(mean(critic(fake)), mean(critic(real))), mul(penalty, Scalar(10)));
}

TEST(GradientPenalty, RanksMatchOneProcessOnTheWholeBatch) {
  const Tensor real = values({kBatch, 5}, 5), fake = values({kBatch, 5}, 6);
  Mlp alone(5, 1, 10);
  critic_loss([&](const Tensor& x) { return alone(x); }, real, fake).backward();
  for (const int world : {1, 2, 3}) {
    run_threads(world, [&](Context& context) {
      Mlp model(5, 1, 10);
      DistributedDataParallel critic(model, context.group(), {.buckets = kTinyBuckets});
      const Model call = [&](const Tensor& x) { return critic(x); };
      critic_loss(call, own_rows(real, context.rank(), world), own_rows(fake, context.rank(), world)).backward();
      for (const auto& [name, parameter] : model.named_parameters()) {
        const Tensor& reference = name == "w1" ? alone.w1 : alone.w2;
        const std::vector<double> expected = reference.grad().to_vector<double>();
        const std::vector<double> got = parameter.grad().to_vector<double>();
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << name;
      }
    });
  }
}

/// Blocks of which the first and the last share a weight, with dropout.
struct Deep : nn::Layer {
  std::vector<Tensor*> weights;
  explicit Deep(int depth) {
    for (int i = 0; i < depth; ++i) {
      weights.push_back(&add_parameter("w" + std::to_string(i), values({6, 6}, static_cast<uint64_t>(i))));
    }
    weights.push_back(weights.front());
  }
  bool checkpoints = false;
  Tensor forward(const Tensor& input) override {
    Tensor x = input;
    for (const Tensor* weight : weights) {
      const auto block = [weight](const Tensor& t) { return dropout(tanh(matmul(t, *weight)), 0.2); };
      x = checkpoints ? nn::checkpoint(block, x) : block(x);
    }
    return x;
  }
};

/// Counts the launched buckets.
class LaunchedBuckets final : public CommHook {
 public:
  std::string describe() const override { return "launched buckets"; }
  void average(const GradBucket& bucket, const AllReduceMean& next, std::function<void()> done) override {
    ++count;
    next(bucket.values, std::move(done));
  }
  std::atomic<int> count{0};
};

TEST(CheckpointUnderDdp, GradientsHaveTheSameBitsAndBucketsAreLaunchedInBackward) {
  for (const int world : {1, 2, 3}) {
    std::mutex mutex;
    std::map<int, std::map<bool, std::vector<double>>> gradients;  // by rank and whether there are checkpoints
    run_threads(world, [&](Context& context) {
      for (const bool checkpoints : {false, true}) {
        Deep model(5);
        model.checkpoints = checkpoints;
        const auto launched = std::make_shared<LaunchedBuckets>();
        DistributedDataParallel ddp(model, context.group(), {.buckets = kTinyBuckets, .hooks = {launched}});
        manual_seed(3);
        // Of the last two blocks at least, before the gradient of an early block exists.
        int launched_early = 0;
        const HookHandle early = model.weights[1]->register_post_accumulate_grad_hook(
            [&](const Tensor&) { launched_early = launched->count; });
        const Tensor x = own_rows(values({kBatch, 6}, 50), context.rank(), world).requires_grad_();
        sum(square(ddp(x))).backward();
        EXPECT_GE(launched_early, 2);
        std::vector<double> result = x.grad().to_vector<double>();
        for (const Tensor& parameter : model.parameters()) {
          for (const double value : parameter.grad().to_vector<double>()) result.push_back(value);
        }
        const std::lock_guard lock(mutex);
        gradients[context.rank()][checkpoints] = result;
      }
    });
    for (const auto& [rank, by_kind] : gradients) EXPECT_EQ(by_kind.at(false), by_kind.at(true)) << "rank " << rank;
  }
}

TEST(TensorHookUnderDdp, ParameterHookChangesTheLocalGradientBeforeItIsAveraged) {
  run_threads(2, [](Context& context) {
    Mlp model(5, 1, 10);
    DistributedDataParallel ddp(model, context.group(), {.buckets = kTinyBuckets});
    const double factor = context.rank() == 0 ? 2 : 4;
    const HookHandle hook = model.w2.register_hook([&](const Tensor& grad) { return mul(grad, Scalar(factor)); });
    const Tensor x = values({2, 5}, 7);
    sum(ddp(x)).backward();
    Mlp alone(5, 1, 10);
    sum(alone(x)).backward();
    const std::vector<double> expected = alone.w2.grad().to_vector<double>(), got = model.w2.grad().to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], 3 * expected[i], 1e-12);
  });
}

TEST(DistributedDataParallel, ReplacedTensorIsRejected) {
  run_threads(2, [](Context& context) {
    nn::BatchNorm1d layer(3);
    DistributedDataParallel ddp(layer, context.group());
    const Tensor x = values({4, 3}, 1).to(kFloat32);
    for (const auto& [kind, tensor] : {std::pair<std::string, Tensor*>{"parameter 'bias'", &layer.bias},
                                       {"buffer 'running_mean'", &layer.running_mean}}) {
      const Tensor original = *tensor;
      ddp(x);
      *tensor = original.clone();
      EXPECT_EQ(testing::error_text<StateError>([&] { ddp(x); }),
                "DistributedDataParallel: the " + kind +
                    " is not the tensor that it was at construction; set values "
                    "with copy_() instead of assigning a tensor, or make a new DistributedDataParallel");
      *tensor = original;
    }
  });
}

}}  // namespace tandem::distributed
