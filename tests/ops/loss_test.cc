#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(CrossEntropy, LargeLogitShiftDoesNotChangeResult) {
  // 2^16 plus multiples of 1/4 is exact in float32, so loss and gradient are those of the small numbers.
  const Tensor small = tensor({0.25, 1.5, -0.75}).view({1, 3}), labels = tensor({1});
  Tensor x = small.clone().requires_grad_(),
         y = tensor({65536.25, 65537.5, 65535.25}).view({1, 3}).clone().requires_grad_();
  const Tensor loss = cross_entropy(x, labels), shifted = cross_entropy(y, labels);
  EXPECT_EQ(loss.item<float>(), shifted.item<float>());
  loss.backward(full({}, 3.5));
  shifted.backward(full({}, 3.5));
  EXPECT_EQ(x.grad().to_vector<float>(), y.grad().to_vector<float>());
}

TEST(CrossEntropy, ConfidentWrongPredictionHasExactLossAndGradient) {
  Tensor x = tensor({200.0, 0.0}).view({1, 2}).clone().requires_grad_();
  const Tensor loss = cross_entropy(x, tensor({1}));
  EXPECT_EQ(loss.item<float>(), 200.0f);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, -1}));
}

TEST(Losses, EmptyBatchesGiveNaN) {
  for (const Tensor& loss : {cross_entropy(empty({0, 3}), empty({0}, {kInt64})),
                             nll_loss(empty({0, 3}), empty({0}, {kInt64})), mse_loss(empty({0}), empty({0}))}) {
    EXPECT_TRUE(std::isnan(loss.item<float>()));
  }
}

TEST(CrossEntropy, LabelWithoutClassesIsRejected) {
  const Device device = test_device();
  EXPECT_ERROR(IndexError, cross_entropy(zeros({2, 0}, {kFloat32, device}), zeros({2}, {kInt64, device})),
               "cross_entropy: label 0 at position 0 is outside [0, 0)");
}

TEST(CrossEntropy, InvalidArgumentsAreNamedInErrors) {
  const Tensor logits = zeros({4, 10});
  EXPECT_ERROR(IndexError, cross_entropy(logits, tensor({1, 9, 10, -1})),
               "cross_entropy: label 10 at position 2 is outside [0, 10)");
  EXPECT_ERROR(IndexError, cross_entropy(logits, tensor({1, -7, 10, 0})),
               "cross_entropy: label -7 at position 1 is outside [0, 10)");
  EXPECT_ERROR(DTypeError, cross_entropy(logits, zeros({4}, {kInt32})),
               "cross_entropy: target must be int64\n"
               "  input   cpu  float32 [4, 10]\n"
               "  target  cpu  int32   [4]");
  EXPECT_ERROR(ShapeError, cross_entropy(logits, zeros({5}, {kInt64})),
               "cross_entropy: input must be [C] or [N, C, ...] and target have its shape without C\n"
               "  input   cpu  float32 [4, 10]\n"
               "  target  cpu  int64   [5]");
}

// The gradient of logits that nothing else uses is written over them.
struct CrossEntropyLogits : ::testing::Test {
  Tensor x = random_tensor({6, 5}, 1, kFloat32).to(test_device());
  Tensor labels = tensor({1, 0, 4, -100, 2, 3}).to(test_device());
  Tensor expected;
  const void* memory = nullptr;    // of the logits
  const void* gradient = nullptr;  // of their gradient
  HookHandle hook;

  void SetUp() override {
    const Tensor kept = x.clone().requires_grad_();
    cross_entropy(kept, labels).backward();
    expected = kept.grad();
    x.requires_grad_();
  }
  Tensor logits() {
    const Tensor made = x * 1;
    memory = made.data_ptr();
    hook = made.register_hook([this](const Tensor& grad) { gradient = grad.data_ptr(); });
    return made;
  }
};

TEST_F(CrossEntropyLogits, UnusedLogitsAreOverwritten) {
  const Tensor loss = cross_entropy(logits(), labels);
  loss.backward();
  EXPECT_EQ(gradient, memory);
  EXPECT_TRUE(same_bits(x.grad(), expected));
}

TEST_F(CrossEntropyLogits, UsedLogitsAreKept) {
  const Tensor own = logits(), before = own.detach().clone();
  cross_entropy(own, labels).backward();
  EXPECT_NE(gradient, memory);
  EXPECT_TRUE(same_bits(own.detach(), before));
  EXPECT_TRUE(same_bits(x.grad(), expected));
}

TEST_F(CrossEntropyLogits, LogitsWithViewsAreKept) {
  Tensor row, loss;
  {
    const Tensor own = logits();
    row = own.detach()[2];
    loss = cross_entropy(own, labels);
  }
  loss.backward();
  EXPECT_NE(gradient, memory);
  EXPECT_TRUE(same_bits(row, x.detach()[2]));
}

TEST_F(CrossEntropyLogits, RetainGraphKeepsLogits) {
  const Tensor loss = cross_entropy(logits(), labels);
  loss.backward({}, true);
  EXPECT_NE(gradient, memory);
  x.zero_grad();
  loss.backward();
  EXPECT_EQ(gradient, memory);
  EXPECT_TRUE(same_bits(x.grad(), expected));
}

TEST_F(CrossEntropyLogits, LogitsInMemoryOfTheCallerAreKept) {
  std::vector<float> values = x.detach().to(Device()).to_vector<float>();
  const std::vector<float> before = values;
  const Tensor on_cpu = labels.to(Device());
  Tensor loss = cross_entropy(from_blob(values.data(), {6, 5}).requires_grad_(), on_cpu);
  loss.backward();
  EXPECT_EQ(values, before);
}

// The logits are gone if a later node throws, so the backward cannot be repeated.
TEST_F(CrossEntropyLogits, BackwardThatThrewCannotBeRepeated) {
  const Tensor scaled = x * 2;
  hook = scaled.register_hook([](const Tensor&) -> Tensor { throw ValueError("stop"); });
  const Tensor loss = cross_entropy(scaled * 1, labels);
  EXPECT_ERROR(ValueError, loss.backward(), "stop");
  EXPECT_NE(error_text<StateError>([&] { loss.backward(); }).find("on a released graph"), std::string::npos);
}

TEST(NllLoss, InvalidArgumentsAreNamedInErrors) {
  const Tensor log_probs = zeros({4, 10});
  EXPECT_ERROR(IndexError, nll_loss(log_probs, tensor({1, 9, 10, -1})),
               "nll_loss: label 10 at position 2 is outside [0, 10)");
  EXPECT_ERROR(DTypeError, nll_loss(log_probs, zeros({4}, {kInt32})),
               "nll_loss: target must be int64\n"
               "  input   cpu  float32 [4, 10]\n"
               "  target  cpu  int32   [4]");
  EXPECT_ERROR(ShapeError, nll_loss(log_probs, zeros({5}, {kInt64})),
               "nll_loss: input must be [C] or [N, C, ...] and target have its shape without C\n"
               "  input   cpu  float32 [4, 10]\n"
               "  target  cpu  int64   [5]");
  EXPECT_ERROR(DTypeError, nll_loss(zeros({4, 10}, {kInt64}), zeros({4}, {kInt64})),
               "nll_loss: input must be floating\n  input  cpu  int64 [4, 10]");
}

TEST(MseLoss, HalfTypesDoNotOverflow) {
  // 300^2 overflows float16, but the mean over four elements does not.
  Tensor x = zeros({4}, {kFloat16});
  x.select(0, 1).fill_(300);
  x = x.detach().requires_grad_();
  const Tensor loss = mse_loss(x, zeros({4}, {kFloat16}));
  EXPECT_EQ(loss.dtype(), kFloat16);
  EXPECT_EQ(loss.item(), 22496);  // nearest float16 of 22500
  loss.backward(full({}, 0.5, {kFloat16}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 75, 0, 0}));
}

TEST(MseLoss, MixedDTypesArePromoted) {
  Tensor x = tensor({1.0, 2.0}).requires_grad_();
  const Tensor loss = mse_loss(x, zeros({2}, {kFloat64}));
  EXPECT_EQ(loss.dtype(), kFloat64);
  loss.backward();
  EXPECT_EQ(x.grad().dtype(), kFloat32);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2}));
}

TEST(MseLoss, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, mse_loss(zeros({4, 1}), zeros({4})),
               "mse_loss: shapes differ\n"
               "  input   cpu  float32 [4, 1]\n"
               "  target  cpu  float32 [4]");
  EXPECT_ERROR(DTypeError, mse_loss(zeros({2}), tensor({1, 2})),
               "mse_loss: target must be floating\n  target  cpu  int64 [2]");
  EXPECT_ERROR(DTypeError, mse_loss(tensor({1, 2}), zeros({2})),
               "mse_loss: input must be floating\n  input  cpu  int64 [2]");
}

TEST(CrossEntropy, IgnoredLabelsHaveNoLoss) {
  const Tensor x = random_tensor({4, 5}, 1, kFloat64);
  EXPECT_TRUE(std::isnan(cross_entropy(x, full({4}, -100, {kInt64})).item()));
  EXPECT_EQ(cross_entropy(x, full({4}, 7, {kInt64}), {.ignore_index = 7, .reduction = Reduction::kSum}).item(), 0);
}

TEST(CrossEntropy, OneHotProbabilitiesEqualLabels) {
  const Tensor x = random_tensor({4, 5, 2}, 1, kFloat64), weight = random_tensor({5}, 2, kFloat64, 0.5, 2);
  const Tensor labels = tensor({2, 3, 0, 4, 1, 1, 2, 0}).reshape({4, 2});
  const Tensor probabilities = one_hot(labels, 5).transpose(1, 2).to(kFloat64);
  const CrossEntropyOptions options = {.weight = weight, .reduction = Reduction::kNone, .label_smoothing = 0.25};
  EXPECT_TRUE(close(cross_entropy(x, probabilities, options), dense(cross_entropy(x, labels, options)), 1e-14));
}

TEST(CrossEntropy, InvalidOptionsAreNamedInErrors) {
  const Tensor x = zeros({4, 10}), labels = zeros({4}, {kInt64});
  EXPECT_ERROR(ValueError, cross_entropy(x, labels, {.label_smoothing = 1.5}),
               "cross_entropy: label_smoothing is 1.5, expected 0 <= label_smoothing <= 1");
  EXPECT_ERROR(ShapeError, cross_entropy(x, labels, {.weight = ones({9})}),
               "cross_entropy: weight must be [C]\n"
               "  input   cpu  float32 [4, 10]\n"
               "  weight  cpu  float32 [9]");
  EXPECT_ERROR(ShapeError, cross_entropy(x, zeros({4})),
               "cross_entropy: target must be int64 labels, or probabilities of input's shape\n"
               "  input   cpu  float32 [4, 10]\n"
               "  target  cpu  float32 [4]");
  EXPECT_ERROR(ValueError, cross_entropy(x, softmax(x, 1), {.ignore_index = 1}),
               "cross_entropy: ignore_index is 1, but target has probabilities, which have no labels to ignore");
  EXPECT_ERROR(ValueError, triplet_margin_loss(x, x, x, {.margin = 0}),
               "triplet_margin_loss: margin is 0, expected a positive number");
  EXPECT_ERROR(ValueError, nll_loss(x, labels, {.reduction = Reduction::kBatchMean}),
               "nll_loss: kBatchMean is a reduction of kl_div only");
}

TEST(BinaryCrossEntropy, SaturatedInputsHavePyTorchsLossesAndGradients) {
  Tensor x = tensor({0.0, 1.0, 0.0, 1.0}).requires_grad_();
  const Tensor losses = binary_cross_entropy(x, tensor({0.0, 1.0, 1.0, 0.0}), {}, Reduction::kNone);
  EXPECT_EQ(losses.to_vector<float>(), (std::vector<float>{0, 0, 100, 100}));
  losses.backward(ones({4}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, -1e12f, 1e12f}));
}

TEST(BinaryCrossEntropy, SecondDerivativesDoNotCancel) {
  const double inputs[] = {1e-4, 3e-3, 0.3, 0.997};
  for (const double t : {0.0, 0.25, 1.0}) {
    const Tensor x = tensor({inputs[0], inputs[1], inputs[2], inputs[3]}).to(test_device()).requires_grad_();
    const Tensor loss[] = {binary_cross_entropy(x, full({4}, t, x.options()), {}, Reduction::kSum)}, leaf[] = {x};
    const Tensor slope[] = {grad(loss, leaf, {}, {.create_graph = true})[0].sum()};
    const std::vector<float> second = grad(slope, leaf)[0].to_vector<float>(), values = x.to_vector<float>();
    for (size_t i = 0; i < 4; ++i) {
      const double value = values[i], expected = t / (value * value) + (1 - t) / ((1 - value) * (1 - value));
      EXPECT_NEAR(second[i] / expected, 1, 1e-6) << "input " << value << ", target " << t;
    }
  }
}

TEST(BinaryCrossEntropyWithLogits, LargeLogitsAreExact) {
  const Tensor x = tensor({200.0, -200.0, 200.0, 30.0}), target = tensor({1.0, 0.0, 0.0, 1.0});
  const std::vector<float> expected = {0, 0, 200, std::exp(-30.0f)};
  const std::vector<float> losses =
      binary_cross_entropy_with_logits(x, target, {}, Reduction::kNone).to_vector<float>();
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(losses[i], expected[i]) << i;
}

TEST(HuberLoss, KinksHaveSubgradients) {
  Tensor x = tensor({0.0, 1.0, -1.0, 3.0}).requires_grad_();
  const Tensor zero = zeros({4});
  l1_loss(x, zero, Reduction::kSum).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1, -1, 1}));
  x.zero_grad();
  smooth_l1_loss(x, zero, Reduction::kSum, 0).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1, -1, 1}));
  x.zero_grad();
  const Tensor parabola = huber_loss(x, zero, Reduction::kSum, std::numeric_limits<double>::infinity());
  EXPECT_EQ(parabola.item(), 5.5);
  parabola.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), x.to_vector<float>());
  EXPECT_ERROR(ValueError, huber_loss(x, zero, Reduction::kMean, 0),
               "huber_loss: delta is 0, expected a positive number");
  EXPECT_ERROR(ValueError, smooth_l1_loss(x, zero, Reduction::kMean, -1),
               "smooth_l1_loss: beta is -1, expected at least 0");
}

TEST(KlDiv, ZeroProbabilitiesHaveNoLoss) {
  const Tensor out = kl_div(tensor({-INFINITY, -1.0}), tensor({0.0, 1.0}), Reduction::kSum);
  EXPECT_EQ(out.item<float>(), 1.0f);
}

TEST(Distances, ZeroVectorsHaveFiniteGradients) {
  Tensor x = zeros({2, 3}).requires_grad_();
  cosine_similarity(x, ones({2, 3})).sum().backward();
  for (const float value : x.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
  x.zero_grad();
  pairwise_distance(x, zeros({2, 3}), 2, 0).sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(6));
}

TEST(Distances, InfiniteNormIsLargestMagnitude) {
  EXPECT_EQ(normalize(tensor({3.0, -4.0}), INFINITY, 0).to_vector<float>(), (std::vector<float>{0.75f, -1.0f}));
}

TEST(CosineEmbeddingLoss, ShapesAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, cosine_embedding_loss(zeros({4, 3}), zeros({4, 3}), ones({3})),
               "cosine_embedding_loss: input1 and input2 must be [N, D] and target [N], or [D] and []\n"
               "  input1  cpu  float32 [4, 3]\n"
               "  input2  cpu  float32 [4, 3]\n"
               "  target  cpu  float32 [3]");
}

}}  // namespace tandem::testing
