// batch_norm and layer_norm at sizes around the limits of blocks and pieces, on the device under test, compared with
// float64 on the CPU.
#include <tandem/ops/common/common.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

constexpr double kEps = 1e-2, kMomentum = 0.3;

/// Random values in [low, high) that `dtype` can represent.
Dense random_of(DType dtype, const Shape& shape, uint64_t seed, double low = -2, double high = 2) {
  return dense(make_tensor(random_dense(shape, seed, low, high), dtype));
}

/// Result, gradients for random cotangents, and running statistics of a batch norm, for inputs representable in
/// `rounded`.
std::vector<Tensor> all_of_batch_norm(const Shape& shape, bool channels_last, DType rounded, DType dtype,
                                      Device device) {
  const Shape per_channel = {shape[1]};
  const auto make = [&](const Dense& of) { return make_tensor(of, dtype, Layout::kContiguous, device); };
  Tensor x = make(random_of(rounded, shape, 1));
  if (channels_last) x = ops::channels_last(x).detach();
  Tensor weight = make(random_of(rounded, per_channel, 2, 0.5, 2)), bias = make(random_of(rounded, per_channel, 3));
  for (Tensor* leaf : {&x, &weight, &bias}) leaf->requires_grad_();
  const Tensor mean = make_tensor(random_dense(per_channel, 5), kFloat32, Layout::kContiguous, device),
               var = make_tensor(random_dense(per_channel, 6, 0.5, 2), kFloat32, Layout::kContiguous, device);
  const Tensor y = batch_norm(x, mean, var, weight, bias, true, kMomentum, kEps);
  y.backward(make(random_of(rounded, shape, 4, -1, 1)));
  return {mean, var, y, x.grad(), weight.grad(), bias.grad()};
}

TEST(BatchNormSizes, SizesAroundBlocksMatchFloat64) {
  std::vector<std::pair<Shape, bool>> shapes = {{{40, 130}, false},  {{17, 65, 3, 3}, true}, {{9, 260, 2, 5}, false},
                                                {{33000, 1}, false}, {{1, 1, 33000}, false}, {{16500, 1, 2}, false}};
  for (const int64_t n : {2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025}) {
    shapes.push_back({{n, 3}, false});
    shapes.push_back({{1, 2, n}, false});
    shapes.push_back({{n, 1, 2}, false});
  }
  shapes.push_back({{35, 512, 8, 8}, true});  // on GPUs more pieces with 16-byte accesses than without
  for (const auto& [shape, channels_last] : shapes) {
    SCOPED_TRACE(str(shape));
    const double terms = static_cast<double>(num_elements(shape) / shape[1]);
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      const std::vector<Tensor> actual = all_of_batch_norm(shape, channels_last, dtype, dtype, test_device());
      const std::vector<Tensor> exact = all_of_batch_norm(shape, channels_last, dtype, kFloat64, Device());
      for (size_t i = 0; i < actual.size(); ++i) {
        const double rounding = epsilon(i < 2 ? kFloat32 : dtype), sums = i < 4 ? 8 : 2 * std::sqrt(terms);
        const double inexact = dtype == kFloat64 ? 64 * epsilon(kFloat64) : 0;  // tolerance of the reference
        EXPECT_TRUE(close(actual[i], dense(exact[i]), sums * rounding + inexact)) << i << " " << dtype;
      }
    }
  }
}

TEST(LayerNormSizes, SizesAroundBlocksMatchFloat64) {
  std::vector<Shape> shapes = {{1, 33}, {31, 33}, {257, 33}, {1025, 5}, {33000, 1}, {1, 33000}};
  for (const int64_t n : {1, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 2049}) shapes.push_back({3, n});
  const auto run = [](const Shape& shape, DType dtype, Device device) {
    const auto make = [&](const Dense& of) { return make_tensor(of, dtype, Layout::kContiguous, device); };
    Tensor x = make(random_of(kFloat32, shape, 1)).requires_grad_();
    Tensor weight = make(random_of(kFloat32, {shape[1]}, 2, 0.5, 2)).requires_grad_();
    Tensor bias = make(random_of(kFloat32, {shape[1]}, 3)).requires_grad_();
    const Tensor y = layer_norm(x, {shape[1]}, weight, bias, kEps);
    y.backward(make(random_of(kFloat32, shape, 4, -1, 1)));
    return std::vector<Tensor>{y, x.grad(), weight.grad(), bias.grad()};
  };
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str(shape));
    const std::vector<Tensor> exact = run(shape, kFloat64, Device());
    for (const DType dtype : {kFloat32, kFloat64}) {
      const std::vector<Tensor> actual = run(shape, dtype, test_device());
      for (size_t i = 0; i < actual.size(); ++i) {
        const double terms = i < 2 ? 256 : static_cast<double>(std::max<int64_t>(256, shape[0]));
        EXPECT_TRUE(close(actual[i], dense(exact[i]), 2 * std::sqrt(terms) * epsilon(dtype))) << i << " " << dtype;
      }
    }
  }
}

// For nearly constant rows or channels, 1 / sqrt(var + eps) is large and multiplies the rounding errors of g - mean(g).

/// d x for the cotangent `grad`, by kernels or by recorded operations.
Tensor input_gradient(const std::function<Tensor(const Tensor&)>& norm, const Dense& values, const Dense& grad_values,
                      DType dtype, bool recorded) {
  const auto make = [&](const Dense& of) { return make_tensor(of, dtype, Layout::kContiguous, test_device()); };
  const Tensor x = make(values).requires_grad_();
  const Tensor y[] = {norm(x)}, inputs[] = {x}, cotangents[] = {make(grad_values)};
  return grad(y, inputs, cotangents, {.create_graph = recorded})[0].detach();
}

TEST(LayerNormSizes, SingleElementHasZeroGradient) {
  for (const DType dtype : floating_dtypes()) {
    for (const bool recorded : {false, true}) {
      const Tensor weight = full({1}, 2.7, {dtype, test_device()});
      const auto norm = [&](const Tensor& x) { return layer_norm(x, {1}, weight, {}); };
      const Dense x = random_dense({37, 1}, 1, -1000, 1000), g = random_dense({37, 1}, 2, -3, 3);
      EXPECT_EQ(input_gradient(norm, x, g, dtype, recorded).to_vector<double>(), dense_zeros({37, 1}).values)
          << dtype << (recorded ? " recorded" : "");
    }
  }
}

TEST(LayerNormSizes, ConstantRowsWithEqualCotangentsHaveZeroGradient) {
  for (const DType dtype : {kFloat64, kFloat32}) {
    for (const int64_t n : {2, 3, 7, 31, 33, 500}) {
      for (const double value : {0.0, 3.0, 1e4}) {
        const auto norm = [n](const Tensor& x) { return layer_norm(x, {n}, {}, {}); };
        const Dense x{{3, n}, std::vector<double>(static_cast<size_t>(3 * n), value)};
        const Dense g{{3, n}, std::vector<double>(static_cast<size_t>(3 * n), 1.3125)};  // exact sums
        EXPECT_EQ(input_gradient(norm, x, g, dtype, false).to_vector<double>(), dense_zeros({3, n}).values)
            << n << " " << value;
      }
    }
  }
}

TEST(BatchNormSizes, ConstantChannelsWithEqualCotangentsHaveZeroGradient) {
  for (const DType dtype : {kFloat64, kFloat32}) {
    for (const Shape& shape : {Shape{2, 3}, Shape{5, 3, 7, 3}, Shape{1, 2, 33}}) {
      const Tensor weight = full({shape[1]}, 2.7, {dtype, test_device()});
      const auto norm = [&](const Tensor& x) { return batch_norm(x, {}, {}, weight, {}, true); };
      const auto all = [&](double value) {
        return Dense{shape, std::vector<double>(static_cast<size_t>(num_elements(shape)), value)};
      };
      for (const double value : {0.0, 3.0, 1e4}) {
        EXPECT_EQ(input_gradient(norm, all(value), all(1.25), dtype, false).to_vector<double>(), all(0).values)
            << shape << " " << value;
      }
    }
  }
}

/// Verifies that the gradient of the kernels is about as precise as that of recorded operations.
void expect_as_exact_as_recorded(const std::function<Tensor(const Tensor&)>& norm, const Shape& shape, double offset,
                                 double spread) {
  Dense x = random_dense(shape, 1, -spread, spread), g = random_dense(shape, 2, 1, 1.001);
  for (double& value : x.values) value = static_cast<float>(value + offset);
  for (double& value : g.values) value = static_cast<float>(value);
  const std::vector<double> exact = input_gradient(norm, x, g, kFloat64, true).to_vector<double>();
  double errors[2] = {};
  for (const bool recorded : {false, true}) {
    const std::vector<double> actual = input_gradient(norm, x, g, kFloat32, recorded).to_vector<double>();
    for (size_t i = 0; i < exact.size(); ++i)
      errors[recorded] = std::max(errors[recorded], std::abs(actual[i] - exact[i]));
  }
  const double rstd = 1 / std::sqrt(spread * spread / 3 + 1e-5);
  EXPECT_LE(errors[false], 2 * errors[true] + 4 * epsilon(kFloat32) * rstd) << shape << " " << offset << " " << spread;
}

TEST(NormGradients, KernelsAreAsExactAsRecordedOperations) {
  for (const double offset : {0.0, 3.0, 1000.0}) {
    for (const double spread : {0.0, 1e-3, 1.0}) {
      for (const int64_t n : {2, 3, 7, 31, 33, 500}) {
        const auto layer = [n](const Tensor& x) { return layer_norm(x, {n}, {}, {}); };
        expect_as_exact_as_recorded(layer, {3, n}, offset, spread);
        const auto batch = [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, true); };
        expect_as_exact_as_recorded(batch, {n, 3}, offset, spread);
        expect_as_exact_as_recorded(batch, {n, 3, 2, 2}, offset, spread);
      }
    }
  }
}

}}  // namespace tandem::testing
