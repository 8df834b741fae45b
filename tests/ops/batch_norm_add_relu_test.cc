// Backward of batch_norm_add_relu, which on GPUs reads a bit mask where all accesses have 16 bytes.
#include <tandem/autograd/checkpoint.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

enum class Unaligned { kNone, kInput, kResidual, kCotangent };

/// An image batch; `aligned` memory begins at a multiple of 16 bytes.
Tensor image(const Dense& values, DType dtype, bool channels_last, bool aligned) {
  const Shape& shape = values.shape;
  const int64_t begin = aligned ? 0 : 1, size = values.numel();
  const Tensor memory = empty({size + 1}, {dtype, test_device()}).slice(0, begin, begin + size);
  const Tensor result =
      channels_last ? memory.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2}) : memory.view(shape);
  return result.copy_(make_tensor(values, dtype, Layout::kContiguous, test_device()));
}

/// Ten special values in random order.
Dense special_values(const Shape& shape, uint64_t seed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {0, -0.0, NAN, kInfinity, -kInfinity, 1e-39, 1e-60, -1e-39, 2.5, -2.5};
  Dense values = random_dense(shape, seed, 0, 10);
  for (double& value : values.values) value = kValues[static_cast<int>(value)];
  return values;
}

/// Weights that are 0 for every other channel.
Dense weights(int64_t channels) {
  Dense values = random_dense({channels}, 2);
  for (int64_t c = 0; c < channels; c += 2) values[c] = 0;
  return values;
}

/// -0, and for every fourth channel a number that float32 can represent, and that half types round to 0.
Dense biases(int64_t channels) {
  Dense values{{channels}, std::vector<double>(static_cast<size_t>(channels), -0.0)};
  for (int64_t c = 0; c < channels; c += 4) values[c] = 1e-41;
  return values;
}

struct Combination {
  DType dtype;
  int64_t channels;
  bool channels_last;
  Unaligned unaligned;
};

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (const DType dtype : floating_dtypes()) {
    for (const int64_t channels : {33, 136}) all.push_back({dtype, channels, true, Unaligned::kNone});
    for (const Unaligned unaligned :
         {Unaligned::kNone, Unaligned::kInput, Unaligned::kResidual, Unaligned::kCotangent}) {
      all.push_back({dtype, 40, true, unaligned});
    }
    all.push_back({dtype, 40, false, Unaligned::kNone});
  }
  return all;
}

TEST(BatchNormAddRelu, GradientIsZeroWhereTheResultIsZero) {
  uint64_t seed = 10;  // increments: a mask that is not written must not contain that of the previous combination
  for (const auto& [dtype, channels, channels_last, unaligned] : combinations()) {
    SCOPED_TRACE(str(dtype, " ", channels, channels_last ? " channels-last, unaligned " : ", unaligned ",
                     static_cast<int>(unaligned)));
    const Shape shape = {3, channels, 9, 11};
    const auto leaf = [&](const Dense& values, Unaligned which) {
      return image(values, dtype, channels_last, unaligned != which).requires_grad_();
    };
    const DType wide = dtype == kFloat64 ? kFloat64 : kFloat32;
    const auto parameter = [&](const Dense& values) {
      return make_tensor(values, wide, Layout::kContiguous, test_device()).requires_grad_();
    };
    const Tensor x = leaf(random_dense(shape, 3), Unaligned::kInput);
    const Tensor residual = leaf(special_values(shape, ++seed), Unaligned::kResidual);
    const Tensor weight = parameter(weights(channels)), bias = parameter(biases(channels));
    const Tensor cotangent = image(random_dense(shape, 4), dtype, channels_last, unaligned != Unaligned::kCotangent);

    const auto run = [&] { return batch_norm_add_relu(x, residual, {}, {}, weight, bias, true); };
    const Tensor y = run();
    const Dense results = dense(y);
    int64_t nan = 0, negative_zeros = 0, zeros = 0, positive = 0;
    Dense counted = dense(cotangent);
    for (int64_t i = 0; i < results.numel(); ++i) {
      nan += std::isnan(results[i]);
      negative_zeros += results[i] == 0 && std::signbit(results[i]);
      zeros += results[i] == 0;
      positive += results[i] > 0;
      if (results[i] <= 0) counted[i] = 0;
    }
    EXPECT_GE(std::min({nan, negative_zeros, zeros, positive}), 20);

    // The gradients of x, weight and bias are those of a batch norm whose result has the gradient `counted`.
    const Tensor masked = image(counted, dtype, channels_last, unaligned != Unaligned::kCotangent);
    const std::vector<Tensor> expected = grad({batch_norm(x, {}, {}, weight, bias, true)}, {x, weight, bias}, {masked});
    const auto expect_gradients = [&](const std::vector<Tensor>& gradients) {
      EXPECT_TRUE(same_bits(gradients[0], masked));
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(gradients[i + 1], expected[i])) << i;
    };
    const std::vector<Tensor> wanted = {residual, x, weight, bias}, cotangents = {cotangent};
    for (int i = 0; i < 2; ++i) expect_gradients(grad(std::vector{y}, wanted, cotangents, {.retain_graph = true}));
    const Tensor recorded = grad(std::vector{y}, wanted, cotangents, {.create_graph = true})[0];
    EXPECT_TRUE(same_bits(recorded.detach(), masked));

    const auto checkpoint = [&] {
      const autograd::CheckpointScope scope([&] { run(); }, wanted);
      return run();
    };
    expect_gradients(grad(std::vector{checkpoint()}, wanted, cotangents));
  }
}

TEST(BatchNormAddRelu, ChangedResultIsAnError) {
  const Tensor x = image(random_dense({2, 40, 3, 3}, 1), kFloat32, true, true).requires_grad_();
  const Tensor y = batch_norm_add_relu(x, x.detach(), {}, {}, {}, {}, true);
  y.detach().add_(1);
  const std::string text = error_text<StateError>([&] { y.backward(ones_like(y)); });
  EXPECT_TRUE(text.starts_with("batch_norm_add_relu: 'output' (")) << text;
  EXPECT_NE(text.find("was changed in place by 'add_'"), std::string::npos) << text;
}

/// Bytes that an operation allocates.
struct Bytes {
  int64_t saved;  // that its result holds
  int64_t peak;   // while it runs
};

template <class Operation>
Bytes bytes_of(const Operation& operation) {
  reset_peak_memory(test_device());
  const int64_t before = memory_stats(test_device()).allocated;
  const Tensor result = operation();
  const MemoryStats after = memory_stats(test_device());
  return {after.allocated - before, after.peak_allocated - before};
}

TEST(BatchNormAddRelu, MaskIsStoredOnlyForGradientsOnGpus) {
  const Tensor x = image(random_dense({8, 64, 32, 16}, 1), kBFloat16, true, true).requires_grad_();
  const auto add_relu = [&] { return batch_norm_add_relu(x, x, {}, {}, {}, {}, true); };
  const auto relu = [&] { return batch_norm_relu(x, {}, {}, {}, {}, true); };
  EXPECT_EQ(bytes_of(add_relu).saved - bytes_of(relu).saved, test_device().is_cpu() ? 0 : block_bytes(x.numel() / 8));
  const NoGradGuard guard;
  EXPECT_EQ(bytes_of(add_relu).peak, bytes_of(relu).peak);
}

}}  // namespace tandem::testing
