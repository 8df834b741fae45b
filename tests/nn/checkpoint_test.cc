#include <iostream>

#include <tandem/tests/nn/nn.h>

namespace tandem { namespace {

using testing::error_text;

std::string bytes(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  return {reinterpret_cast<const char*>(dense.data_ptr()), static_cast<size_t>(dense.num_bytes())};
}

/// Calls a function, in a checkpoint or not.
using Caller = std::function<Tensor(const std::function<Tensor(const Tensor&)>&, const Tensor&)>;
const Caller kPlain = [](const auto& f, const Tensor& x) { return f(x); };
const Caller kCheckpoint = [](const auto& f, const Tensor& x) { return nn::checkpoint(f, x); };

/// The bytes of a result and of gradients, and a number drawn afterwards.
std::vector<std::string> run(const std::function<Tensor(const Caller&, const Tensor& x)>& step, const Caller& caller,
                             const std::vector<Tensor>& parameters) {
  manual_seed(5);
  for (const Tensor& parameter : parameters) parameter.zero_grad();
  const Tensor x = randn({8, 16}).requires_grad_();
  const Tensor y = step(caller, x);
  sum(mul(y, y)).backward();
  std::vector<std::string> result = {bytes(y), bytes(x.grad()), bytes(rand({1}))};
  for (const Tensor& parameter : parameters) result.push_back(bytes(parameter.grad()));
  return result;
}

TEST(Checkpoint, DropoutHasTheSameBits) {
  nn::Linear a(16, 16), b(16, 16);
  const auto block = [&](const Tensor& x) { return dropout(relu(b(dropout(a(x), 0.5))), 0.25); };
  const auto step = [&](const Caller& call, const Tensor& x) { return call(block, call(block, x)); };
  std::vector<Tensor> parameters = a.parameters();
  for (const Tensor& parameter : b.parameters()) parameters.push_back(parameter);
  const auto plain = run(step, kPlain, parameters);
  EXPECT_EQ(plain, run(step, kCheckpoint, parameters));
  EXPECT_NE(plain[0], std::string(plain[0].size(), '\0'));
}

TEST(Checkpoint, GeneratorFirstUsedInsideHasTheSameBits) {
  // The generator of cpu:1 does not exist when the checkpoint begins.
  set_cpu_device_count(2);
  const auto block = [](const Tensor& x) {
    return mul(x, dropout(ones({8, 16}, {kFloat32, Device(DeviceType::kCPU, 1)}), 0.5).to(Device()));
  };
  const auto step = [&](const Caller& call, const Tensor& x) { return call(block, x); };
  EXPECT_EQ(run(step, kPlain, {}), run(step, kCheckpoint, {}));
}

TEST(Checkpoint, AutocastHasTheSameBits) {
  nn::Linear layer(16, 16);
  const auto block = [&](const Tensor& x) { return layer(layer(x)); };
  const auto step = [&](const Caller& call, const Tensor& x) {
    const Autocast autocast(kBFloat16);
    return call(block, x).to(kFloat32);
  };
  EXPECT_EQ(run(step, kPlain, layer.parameters()), run(step, kCheckpoint, layer.parameters()));
}

TEST(Checkpoint, NestedCheckpointsHaveTheSameBits) {
  nn::Linear a(16, 16), b(16, 16);
  std::vector<Tensor> parameters = a.parameters();
  for (const Tensor& parameter : b.parameters()) parameters.push_back(parameter);
  const auto step = [&](const Caller& call, const Tensor& x) {
    return call(
        [&](const Tensor& outer) {
          const Tensor inner = call([&](const Tensor& t) { return dropout(relu(a(t)), 0.5); }, exp(outer));
          return call([&](const Tensor& t) { return tanh(b(t)); }, inner);
        },
        x);
  };
  EXPECT_EQ(run(step, kPlain, parameters), run(step, kCheckpoint, parameters));
}

TEST(Checkpoint, RetainGraphAndSecondDerivativesHaveTheSameBits) {
  nn::Linear layer(16, 16);
  const auto block = [&](const Tensor& x) { return tanh(layer(tanh(x))); };
  const auto penalty = [&](const Caller& call, const Tensor& x) {
    const Tensor y = call(block, x);
    sum(y).backward({}, /*retain_graph=*/true);
    const Tensor gradient = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
    return mul(gradient, y);
  };
  EXPECT_EQ(run(penalty, kPlain, layer.parameters()), run(penalty, kCheckpoint, layer.parameters()));
}

TEST(Checkpoint, SecondDerivativeOfAFullGraphMatches) {
  nn::Linear layer(16, 16);
  const auto second = [&](const Caller& call) {
    manual_seed(3);
    const Tensor x = randn({4, 16}).requires_grad_();
    const Tensor y = call([&](const Tensor& t) { return sum(tanh(layer(t))); }, x);
    const Tensor first = grad({y}, {x}, {}, {.create_graph = true})[0];
    return bytes(grad({sum(mul(first, first))}, {x})[0]);
  };
  EXPECT_EQ(second(kPlain), second(kCheckpoint));
}

TEST(Checkpoint, BatchNormUpdatesItsStatisticsOnce) {
  const auto statistics = [](const Caller& call) {
    manual_seed(2);
    nn::Sequential net;
    net.append<nn::Conv2d>(3, 4, 3);
    auto& norm = net.append<nn::BatchNorm2d>(4);
    const Tensor x = randn({2, 3, 8, 8}).requires_grad_();
    sum(call([&](const Tensor& t) { return net(t); }, x)).backward();
    return bytes(norm.running_mean) + bytes(norm.running_var) + bytes(norm.num_batches_tracked) + bytes(x.grad());
  };
  EXPECT_EQ(statistics(kPlain), statistics(kCheckpoint));
}

TEST(Checkpoint, TiedParameterOutsideAndInsideHasTheSameBits) {
  nn::Linear layer(16, 16);
  const auto step = [&](const Caller& call, const Tensor& x) {
    return matmul(call([&](const Tensor& t) { return relu(layer(t)); }, layer(x)), layer.weight);
  };
  EXPECT_EQ(run(step, kPlain, layer.parameters()), run(step, kCheckpoint, layer.parameters()));
}

TEST(Checkpoint, SeveralInputsAndOutputsAreSupported) {
  const Tensor a = full({2}, 2, {kFloat64}).requires_grad_();
  const Tensor b = full({2}, 3, {kFloat64}).requires_grad_();
  const auto [product, quotient] =
      nn::checkpoint([](const Tensor& x, const Tensor& y) { return std::pair(mul(mul(x, y), y), div(x, y)); }, a, b);
  add(sum(product), sum(quotient)).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{9 + 1 / 3.0, 9 + 1 / 3.0}));
  EXPECT_DOUBLE_EQ(b.grad().to_vector<double>()[0], 12 - 2 / 9.0);
}

TEST(Checkpoint, FunctionRunsAgainOnceAndOnlyForBackward) {
  int calls = 0;
  const auto f = [&calls](const Tensor& x) {
    ++calls;
    return exp(mul(x, x));
  };
  const Tensor x = ones({2}).requires_grad_();
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(nn::checkpoint(f, x).requires_grad());
  }
  EXPECT_EQ(calls, 1);
  const Tensor y = sum(nn::checkpoint(f, mul(x, 2)));
  EXPECT_EQ(calls, 2);
  y.backward();
  EXPECT_EQ(calls, 3);
}

TEST(Checkpoint, ChangedInputIsRejected) {
  const Tensor x = ones({2}).requires_grad_();
  const Tensor y = mul(x, 2);
  const Tensor z = sum(nn::checkpoint([](const Tensor& t) { return exp(t); }, y));
  {
    const NoGradGuard no_grad;
    y.mul_(Scalar(3));
  }
  EXPECT_ERROR(StateError, z.backward(),
               "checkpoint: input 0 (float32 [2] on cpu) was changed in place by 'mul_' after the call, but backward "
               "needs its value");
}

TEST(Checkpoint, ChangedTensorThatNoOperationSavesIsRejected) {
  const Tensor x = ones({2}).requires_grad_();
  const Tensor mean = zeros({2});
  const Tensor z = sum(nn::checkpoint(
      [&mean](const Tensor& t) {
        const Tensor difference = sub(t, mean);
        return mul(difference, difference);
      },
      x));
  mean.fill_(10);
  EXPECT_ERROR(
      StateError, z.backward(),
      "checkpoint: a tensor that the function uses was changed in place after the call, but backward needs its value");
}

TEST(Checkpoint, FunctionThatCallsGradIsRejected) {
  const Tensor x = ones({2}).requires_grad_();
  const auto text = [&](auto function) { return error_text<StateError>([&] { nn::checkpoint(function, x); }); };
  EXPECT_EQ(text([](const Tensor& t) { return grad({sum(exp(t))}, {t})[0]; }),
            "checkpoint: the function calls grad, which is not supported; move the call out of the checkpoint");
  // Also if that backward needs no saved tensor.
  EXPECT_EQ(text([](const Tensor& t) { return sum(t + t).backward(), t; }),
            "checkpoint: the function calls backward, which is not supported; move the call out of the checkpoint");
}

TEST(Checkpoint, BackwardOnAnotherThreadDrawsTheSameNumbers) {
  const auto gradient = [](const Caller& call) {
    manual_seed(3);
    rand({100});
    const Tensor x = ones({64}).requires_grad_();
    const Tensor y = sum(call([](const Tensor& t) { return exp(dropout(t, 0.5)); }, x));
    std::thread([&] { y.backward(); }).join();
    return bytes(x.grad());
  };
  EXPECT_EQ(gradient(kPlain), gradient(kCheckpoint));
}

TEST(Checkpoint, InputChangedInPlaceCreatesNoReferenceCycle) {
  const Tensor x = ones({1024}).requires_grad_();
  const auto allocated = [&] {
    const Tensor y = mul(x, 2);
    y.add_(nn::checkpoint([](const Tensor& t) { return exp(t); }, y));
    return memory_stats(Device()).allocated;
  };
  const int64_t first = allocated();
  EXPECT_EQ(allocated(), first);
}

TEST(Checkpoint, FunctionThatSavesOtherTensorsIsRejected) {
  int calls = 0;
  const Tensor x = ones({2}).requires_grad_();
  const auto loss_of = [&](const std::function<Tensor(const Tensor&)>& second_run) {
    calls = 0;
    return sum(nn::checkpoint(
        [&, second_run](const Tensor& t) { return calls++ == 0 ? exp(mul(t, t)) : second_run(t); }, mul(x, 2)));
  };
  EXPECT_ERROR(StateError, loss_of([](const Tensor& t) { return mul(t, 2); }).backward(),
               "checkpoint: in backward the function saved 0 tensors, in forward 3; it must do the same in both");
  EXPECT_ERROR(StateError, loss_of([](const Tensor& t) { return exp(t); }).backward(),
               "checkpoint: the function must do the same in backward as in forward, but in backward exp saved float32 "
               "[2], in forward mul saved float32 [2]");
  const auto longer = [](const Tensor& t) { return exp(exp(mul(t, t))); };
  EXPECT_ERROR(StateError, loss_of(longer).backward(),
               "checkpoint: the function must do the same in backward as in forward, but in backward exp saved float32 "
               "[2] as number 4, in forward 3 tensors were saved");
  EXPECT_FALSE(x.grad().defined());
  const Tensor y = loss_of([](const Tensor&) -> Tensor { throw ValueError("f: as planned"); });
  EXPECT_ERROR(ValueError, y.backward({}, true), "f: as planned");
  calls = 0;  // a failed run leaves the graph usable
  y.backward();
  EXPECT_FLOAT_EQ(x.grad().to_vector<float>()[0], 8 * std::exp(4.0f));
}

TEST(Checkpoint, ModesAreRestoredAfterTheSecondRun) {
  const Tensor x = ones({2}).requires_grad_();
  bool saw_grad_mode = false;
  int recomputing = 0;
  const Tensor y = sum(nn::checkpoint(
      [&](const Tensor& t) {
        saw_grad_mode = is_grad_enabled();
        recomputing += autograd::is_recomputing() ? 1 : 0;
        return exp(mul(t, t));
      },
      mul(x, 2)));
  EXPECT_EQ(recomputing, 0);
  const NoGradGuard no_grad;
  y.backward();
  EXPECT_TRUE(saw_grad_mode);
  EXPECT_EQ(recomputing, 1);
  EXPECT_FALSE(is_grad_enabled());
  EXPECT_FALSE(autograd::is_recomputing());
}

/// One block of a transformer.
struct Block : nn::Layer {
  nn::LayerNorm& norm1 = add<nn::LayerNorm>("norm1", Shape{64});
  nn::MultiheadAttention& attention = add<nn::MultiheadAttention>("attention", 64, 4, {.is_causal = true});
  nn::LayerNorm& norm2 = add<nn::LayerNorm>("norm2", Shape{64});
  nn::Linear& up = add<nn::Linear>("up", 64, 256);
  nn::Linear& down = add<nn::Linear>("down", 256, 64);
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(norm1(x));
    return y + dropout(down(gelu(up(norm2(y)))), 0.1);
  }
};

struct Peak {
  int64_t activations;
  std::string gradients;
};

/// Peak memory above that of parameters and gradients, of one training step of 24 blocks.
Peak train_step(bool checkpoints) {
  manual_seed(1);
  nn::ModuleList<Block> blocks;
  for (int i = 0; i < 24; ++i) blocks.append();
  const auto step = [&] {
    blocks.zero_grad();
    manual_seed(7);
    Tensor x = randn({4, 64, 64});
    for (Block* block : blocks) x = checkpoints ? nn::checkpoint(*block, x) : (*block)(x);
    sum(mul(x, x)).backward();
  };
  step();  // gradients exist from here on
  reset_peak_memory(Device());
  const int64_t before = memory_stats(Device()).allocated;
  step();
  Peak peak{memory_stats(Device()).peak_allocated - before, ""};
  for (const Tensor& parameter : blocks.parameters()) peak.gradients += bytes(parameter.grad());
  return peak;
}

TEST(Checkpoint, TransformerOf24LayersNeedsAThirdOfTheMemory) {
  const Peak plain = train_step(false), checkpointed = train_step(true);
  EXPECT_EQ(plain.gradients == checkpointed.gradients, true);
  EXPECT_LE(checkpointed.activations, plain.activations * 0.35);
  std::cout << "peak without checkpoints " << plain.activations << " bytes, with " << checkpointed.activations << "\n";
}

}}  // namespace tandem
