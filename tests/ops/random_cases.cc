#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

std::vector<Placed> placed(const std::vector<Tensor>& tensors, const std::vector<Device>& devices) {
  std::vector<Placed> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back({tensors[i], devices.at(i)});
  return result;
}

/// A dropout of whole channels, whose values depend on the first `dims` dimensions. Each call draws the same numbers.
template <class Dropout>
OpCase dropout_case(const char* name, Dropout dropout_channels, const Shape& shape, int64_t dims) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  op.run = [=](const Tensors& x) {
    Generator generator(17);
    return dropout_channels(x[0], 0.375, true, &generator);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Generator generator(17);
    const Shape channels(shape.begin(), shape.begin() + dims);
    const Dense factors = dense(dropout(ones(channels, {kFloat64, test_device()}), 0.375, true, &generator));
    Dense out = in[0];
    const int64_t values = out.numel() / factors.numel();
    for (int64_t i = 0; i < out.numel(); ++i) out[i] *= factors[i / values];
    return out;
  };
  return op;
}

}  // namespace

TANDEM_OP_CASES(random) {
  const Device second(test_device().type, 2);
  const TensorOptions on_second = {kFloat32, second};
  const std::vector<Input> probabilities = {{"p", {3, 7}, 0, 1}};
  const std::vector<Input> weights = {positive("input", {3, 7})};
  cases.crossing("Tensor rand(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr)",
                 {{}, [=](const Tensors&) { return placed({rand({5}, on_second)}, {second}); }});
  cases.crossing("Tensor randn(const Shape& shape, TensorOptions options = {}, Generator* generator = nullptr)",
                 {{}, [=](const Tensors&) { return placed({randn({5}, on_second)}, {second}); }});
  cases.op("Tensor rand_like(const Tensor& input, Generator* generator = nullptr)", std::nullopt,
           {{.inputs = {{"input", {3, 7}}},
             .run = [](const Tensors& x) { return rand_like(x[0]); },
             .has_gradient = false}});
  cases.op("Tensor randn_like(const Tensor& input, Generator* generator = nullptr)", std::nullopt,
           {{.inputs = {{"input", {3, 7}}},
             .run = [](const Tensors& x) { return randn_like(x[0]); },
             .has_gradient = false}});
  cases.crossing(
      "Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {kInt64}, Generator* "
      "generator = nullptr)",
      {{}, [=](const Tensors&) {
         return placed({randint(0, 9, {5}, {kInt64, second})}, {second});
       }});
  cases.crossing(
      "Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {kInt64}, Generator* generator = "
      "nullptr)",
      {{}, [=](const Tensors&) {
         return placed({randint(9, {5}, {kInt64, second})}, {second});
       }});
  cases.crossing(
      "Tensor normal(double mean, double std, const Shape& shape, TensorOptions options = {}, Generator* generator = "
      "nullptr)",
      {{}, [=](const Tensors&) { return placed({normal(1, 2, {5}, on_second)}, {second}); }});
  const std::vector<Input> moments = {constant({"mean", {3, 7}}), constant(positive("std", {7}))};
  cases.op("Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator = nullptr)", std::nullopt,
           {{.inputs = moments, .run = [](const Tensors& x) { return normal(x[0], x[1]); }, .has_gradient = false}});
  cases.op("Tensor normal(const Tensor& mean, double std = 1, Generator* generator = nullptr)", std::nullopt,
           {{.inputs = {moments[0]}, .run = [](const Tensors& x) { return normal(x[0], 2); }, .has_gradient = false}});
  cases.op("Tensor normal(double mean, const Tensor& std, Generator* generator = nullptr)", std::nullopt,
           {{.inputs = {moments[1]}, .run = [](const Tensors& x) { return normal(2, x[0]); }, .has_gradient = false}});
  const auto in_place = [&](const char* declaration, Tensor (*run)(const Tensors&)) {
    cases.op(declaration, std::nullopt,
             {{.inputs = {constant({"self", {3, 7}})}, .run = run, .has_gradient = false, .in_place = true}});
  };
  in_place("const Tensor& normal_(double mean = 0, double std = 1, Generator* generator = nullptr) const",
           [](const Tensors& x) { return x[0].normal_(1, 2); });
  in_place("const Tensor& uniform_(double from = 0, double to = 1, Generator* generator = nullptr) const",
           [](const Tensors& x) { return x[0].uniform_(-1, 2); });
  in_place("const Tensor& bernoulli_(double p = 0.5, Generator* generator = nullptr) const",
           [](const Tensors& x) { return x[0].bernoulli_(0.25); });
  in_place("const Tensor& exponential_(double lambd = 1, Generator* generator = nullptr) const",
           [](const Tensors& x) { return x[0].exponential_(2); });
  cases.crossing("Tensor randperm(int64_t n, Device device = {}, Generator* generator = nullptr)",
                 {{}, [=](const Tensors&) { return placed({randperm(5, second)}, {second}); }});
  cases.op(
      "Tensor bernoulli(const Tensor& p, Generator* generator = nullptr)", std::nullopt,
      {{.inputs = probabilities, .run = [=](const Tensors& x) { return bernoulli(x[0]); }, .has_gradient = false}});
  cases.op(
      "Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement = false, Generator* "
      "generator = nullptr)",
      std::nullopt,
      {{.inputs = weights, .run = [=](const Tensors& x) { return multinomial(x[0], 2); }, .has_gradient = false}});
  cases.op("Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr)",
           std::nullopt, {{.inputs = {{"x", {3, 7}}}, .run = [=](const Tensors& x) { return dropout(x[0], 0.25); }}});
  const auto one = [](const Shape& shape, int64_t dims) { return dropout_case("dropout1d", dropout1d, shape, dims); };
  cases.op(
      "Tensor dropout1d(const Tensor& input, double p = 0.5, bool training = true, Generator* generator = nullptr)",
      std::nullopt, {one({3, 7, 2}, 2), one({5, 3}, 1)});
  cases.add(one({33, 65, 31}, 2), kThreads);
  const auto two = [](const Shape& shape) { return dropout_case("dropout2d", dropout2d, shape, 2); };
  cases.op(
      "Tensor dropout2d(const Tensor& input, double p = 0.5, bool training = true, Generator* generator = nullptr)",
      std::nullopt, {two({3, 7, 2, 3}), two({3, 7, 2})});
  cases.add(two({5, 65, 31, 7}), kThreads);

  const auto input = [] { return TensorList{randn({2048, 1024})}; };
  const auto like = [](Tensor (*make)(const Shape&, TensorOptions, Generator*)) {
    return [make](const TensorList& in) { return make(in[0].shape(), {}, nullptr); };
  };
  cases.benchmark("rand", input, like(rand), {.bytes = 2048 * 1024 * 4, .backward = false});
  cases.benchmark("rand_like", input, [](const TensorList& in) { return rand_like(in[0]); }, {.backward = false});
  cases.benchmark("randn_like", input, [](const TensorList& in) { return randn_like(in[0]); }, {.backward = false});
  cases.benchmark("normal", input, [](const TensorList& in) { return normal(1, 2, in[0].shape()); },
                  {.bytes = 2048 * 1024 * 4, .backward = false});
  cases.benchmark("randint", input, [](const TensorList& in) { return randint(-9, 1000, in[0].shape()); },
                  {.bytes = 2048 * 1024 * 8, .backward = false});
  cases.benchmark("randperm", input, [](const TensorList& in) { return randperm(in[0].numel()); },
                  {.bytes = 2048 * 1024 * 8, .backward = false});
  cases.benchmark(
      "bernoulli",
      [] {
        return TensorList{rand({2048, 1024})};
      },
      [](const TensorList& in) { return bernoulli(in[0]); }, {.backward = false});
  cases.benchmark("dropout1d", {{32, 64, 1024}}, [](const TensorList& in) { return dropout1d(in[0], 0.5); });
  cases.benchmark("dropout2d", {{32, 64, 32, 32}}, [](const TensorList& in) { return dropout2d(in[0], 0.5); });
  cases.benchmark(
      "multinomial",
      [] {
        return TensorList{rand({512, 1000})};
      },
      [](const TensorList& in) { return multinomial(in[0], 1); }, {.backward = false});
}

}  // namespace tandem::testing
