#include <tandem/tests/ops/norm_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using namespace norm;

/// The exchange of a single rank.
struct SingleRank : BatchNormExchange {
  Tensor gather(const Tensor& moments) override { return moments.unsqueeze(0); }
  void sum(const Tensor&) override {}
};

OpCase layer_norm_case(Shape shape, Shape normalized, bool with_weight = true, bool with_bias = true) {
  OpCase op;
  op.name = "layer_norm";
  op.inputs = {{"input", shape}};
  if (with_weight) op.inputs.push_back({.name = "weight", .shape = normalized, .low = 0.5, .optional = true});
  if (with_bias) op.inputs.push_back({.name = "bias", .shape = normalized, .optional = true});
  const int64_t n = num_elements(normalized);
  op.terms = static_cast<double>(std::max(n, num_elements(shape) / n));
  op.tolerance = 8;
  op.run = [=](const std::vector<Tensor>& in) {
    return layer_norm(in[0], normalized, with_weight ? in[1] : Tensor(), with_bias ? in.back() : Tensor(), kEps);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = in[0];
    for (int64_t row = 0; row < out.numel() / n; ++row) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < n; ++i) mean += in[0][row * n + i] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) variance += std::pow(in[0][row * n + i] - mean, 2) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        double y = (in[0][row * n + i] - mean) / std::sqrt(variance + kEps);
        if (with_weight) y *= in[1][i];
        if (with_bias) y += in.back()[i];
        out[row * n + i] = y;
      }
    }
    return out;
  };
  return op;
}

OpCase rms_norm_case(const Shape& shape, const Shape& normalized, bool with_weight = true) {
  OpCase op = layer_norm_case(shape, normalized, with_weight, false);
  op.name = "rms_norm";
  const int64_t n = num_elements(normalized);
  op.run = [=](const std::vector<Tensor>& in) {
    return rms_norm(in[0], normalized, with_weight ? in[1] : Tensor(), kEps);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = in[0];
    for (int64_t row = 0; row < out.numel() / n; ++row) {
      double squares = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i) squares += in[0][i] * in[0][i] / static_cast<double>(n);
      for (int64_t i = row * n; i < (row + 1) * n; ++i)
        out[i] = in[0][i] / std::sqrt(squares + kEps) * (with_weight ? in[1][i % n] : 1);
    }
    return out;
  };
  return op;
}

OpCase add_layer_norm_case(const Shape& shape, const Shape& normalized) {
  OpCase op = layer_norm_case(shape, normalized);
  op.name = "add_layer_norm";
  op.inputs.insert(op.inputs.begin() + 1, {"other", shape});
  op.run = [=](const std::vector<Tensor>& in) {
    return add_layer_norm(in[0], in[1], normalized, in[2], in[3], kEps).second;
  };
  op.reference = [norm = op.reference](const std::vector<Dense>& in) {
    Dense sum = in[0];
    for (int64_t i = 0; i < sum.numel(); ++i) sum[i] += in[1][i];
    return norm({sum, in[2], in[3]});
  };
  return op;
}

/// Images with [N, H, W, C] in memory, as returned by convolutions, so that gradients are not copied.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}); }
Tensor nchw(const Tensor& image) { return image.permute({0, 3, 1, 2}); }
Tensor nhwc(const Tensor& image) { return image.permute({0, 2, 3, 1}); }

}  // namespace

TANDEM_OP_CASES(norm) {
  const auto inputs = [](const Shape& shape, bool with_residual = false, bool fixed_statistics = false) {
    std::vector<Input> list = {{"input", shape}};
    if (with_residual) list.push_back({"residual", shape});
    for (Input running : {constant({"running_mean", {3}}), constant(positive("running_var", {3}))}) {
      running.dtype = kFloat32;
      list.push_back(fixed_statistics ? running : optional(running));
    }
    list.push_back(optional({"weight", {3}}));
    list.push_back(optional({"bias", {3}}));
    return list;
  };
  const auto sync_norm = [](const Tensors& x) {
    return sync_batch_norm(x[0], x[1], x[2], x[3], x[4], std::make_shared<SingleRank>(), 0.3);
  };
  const Shape image_shape = {2, 3, 4, 5}, rows = {7, 3};
  for (const Tail tail : {Tail::kNone, Tail::kRelu, Tail::kRelu6, Tail::kAddRelu}) {
    const bool adds = tail == Tail::kAddRelu;
    const auto run = [=](bool training) {
      return [=](const Tensors& x) {
        const size_t i = adds ? 2 : 1;
        return fused_batch_norm(tail, x[0], x[i - 1], x[i], x[i + 1], x[i + 2], x[i + 3], training, 0.3, 1e-5);
      };
    };
    OpCase plain{.inputs = {{"input", {4, 3, 2, 2}, 0.5, 2}, {"residual", {4, 3, 2, 2}, 0.5, 2}},
                 .run =
                     [=](const Tensors& x) {
                       const size_t i = adds ? 2 : 1;
                       return fused_batch_norm(tail, x[0], x[i - 1], {}, {}, x[i], x[i + 1], true, 0.1, 1e-2);
                     },
                 .terms = 16};
    if (!adds) plain.inputs.pop_back();
    plain.inputs.push_back(tail == Tail::kRelu6 ? Input{"weight", {3}, 6, 9} : Input{"weight", {3}, 0.5, 2});
    plain.inputs.push_back({"bias", {3}, 0.5, 2});
    std::vector<OpCase> list = {{.inputs = inputs(image_shape, adds), .run = run(true)},
                                {.inputs = inputs(image_shape, adds, true), .run = run(false)},
                                plain};
    if (tail == Tail::kNone) list.push_back({.inputs = inputs(rows), .run = run(true)});
    cases.op(str("Tensor ", to_string(tail), adds ? "(Tensor input, Tensor residual, " : "(Tensor input, ",
                 "const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias, bool training, "
                 "double momentum = 0.1, double eps = 1e-5)"),
             std::nullopt, list);
  }
  cases.op(
      "Tensor sync_batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, "
      "Tensor bias, std::shared_ptr<BatchNormExchange> exchange, double momentum = 0.1, double eps = 1e-5)",
      std::nullopt, {{.inputs = inputs(image_shape), .run = sync_norm, .has_second_gradient = false}});
  cases.op(
      "Tensor layer_norm(Tensor input, const Shape& normalized_shape, Tensor weight, Tensor bias, double eps = 1e-5, "
      "bool low_precision_result = false)",
      CastPolicy::kFloat32,
      {{.inputs = {{"input", {2, 3, 5}}, optional({"weight", {3, 5}}), optional({"bias", {3, 5}})},
        .run =
            [](const Tensors& x) {
              return layer_norm(x[0], {3, 5}, x[1], x[2]);
            }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}, {"weight", {7}, 0.5, 2}, {"bias", {7}, 0.5, 2}},
        .run = [](const Tensors& x) { return layer_norm(x[0], {7}, x[1], x[2], 1e-2); },
        .terms = 7}});

  cases.op(
      "Tensor group_norm(Tensor input, int64_t num_groups, Tensor weight = {}, Tensor bias = {}, double eps = 1e-5)",
      CastPolicy::kFloat32,
      {{.inputs = {{"input", {2, 6, 3, 2}}, optional({"weight", {6}}), optional({"bias", {6}})},
        .run = [](const Tensors& x) { return group_norm(x[0], 3, x[1], x[2]); }},
       {.inputs = {{"input", {4, 6, 2}, 0.5, 2}, {"weight", {6}, 0.5, 2}, {"bias", {6}, 0.5, 2}},
        .run = [](const Tensors& x) { return group_norm(x[0], 2, x[1], x[2], 1e-2); },
        .terms = 8}});
  const auto response_case = [](const Shape& shape, int64_t size) {
    OpCase op{.name = "local_response_norm",
              .inputs = {{"input", shape}},
              .run = [=](const Tensors& x) { return local_response_norm(x[0], size, 0.5, 0.75, 2); },
              .terms = 8};
    op.reference = in_float64(op);
    return op;
  };
  cases.op(
      "Tensor local_response_norm(Tensor input, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1)",
      CastPolicy::kFloat32, {response_case({2, 5, 3}, 3), response_case({2, 4, 2, 3}, 2)});
  cases.benchmark(
      "local_response_norm", {{32, 64, 32, 32}}, [](const TensorList& in) { return local_response_norm(in[0], 5); }, {},
      "torch.nn.functional.local_response_norm(a, 5)");
  const auto instance = [](bool use_input_stats) {
    return [=](const Tensors& x) { return instance_norm(x[0], x[1], x[2], x[3], x[4], use_input_stats, 0.3); };
  };
  cases.op(
      "Tensor instance_norm(Tensor input, const Tensor& running_mean = {}, const Tensor& running_var = {}, Tensor "
      "weight = {}, Tensor bias = {}, bool use_input_stats = true, double momentum = 0.1, double eps = 1e-5)",
      std::nullopt,
      {{.inputs = inputs(image_shape), .run = instance(true)},
       {.inputs = inputs(image_shape, false, true), .run = instance(false)}});
  cases.op(
      "Tensor rms_norm(Tensor input, const Shape& normalized_shape, Tensor weight = {}, std::optional<double> eps = "
      "{})",
      CastPolicy::kFloat32,
      {{.inputs = {{"input", {2, 3, 5}}, optional({"weight", {3, 5}})},
        .run =
            [](const Tensors& x) {
              return rms_norm(x[0], {3, 5}, x[1]);
            }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}, {"weight", {7}, 0.5, 2}},
        .run = [](const Tensors& x) { return rms_norm(x[0], {7}, x[1], 1e-2); },
        .terms = 7}});
  cases.op(
      "std::pair<Tensor, Tensor> add_layer_norm(Tensor input, const Tensor& other, const Shape& normalized_shape, "
      "Tensor weight, Tensor bias, double eps = 1e-5, bool low_precision_result = false)",
      CastPolicy::kFloat32,
      {{.inputs =
            {{"input", {2, 3, 5}}, {"other", {2, 3, 5}}, optional({"weight", {3, 5}}), optional({"bias", {3, 5}})},
        .run = [](const Tensors& x) {
          return add_layer_norm(x[0], x[1], {3, 5}, x[2], x[3]).second;
        }}});

  for (const Tail tail : {Tail::kNone, Tail::kRelu, Tail::kRelu6, Tail::kAddRelu}) {
    for (const bool training : {true, false}) {
      const Options o = {.training = training, .tail = tail};
      cases.add(batch_norm_case({7, 3}, o));
      cases.add(batch_norm_case({3, 2, 5}, o));
      cases.add(batch_norm_case({2, 3, 2, 3}, o));
      Options last = o;
      last.channels_last = true;
      cases.add(batch_norm_case({2, 3, 2, 3}, last));
      cases.add(batch_norm_case({2, 8, 2, 2}, last));  // 16-byte accesses on GPUs
      cases.add(batch_norm_case({5, 3}, {.training = training, .tail = tail, .weight = false}));
      cases.add(batch_norm_case({5, 3}, {.training = training, .tail = tail, .bias = false}));
      cases.add(batch_norm_case({2, 3, 3}, {.training = training, .tail = tail, .weight = false, .bias = false}));
    }
    for (const bool channels_last : {false, true}) {
      const Options o = {.tail = tail, .channels_last = channels_last};
      cases.add(batch_norm_case({5, 33, 3, 31}, o), kValues);
      cases.add(batch_norm_case({5, 40, 3, 31}, o), kValues);
      cases.add(batch_norm_case({65, 33, 7, 9}, o), kThreads);
      cases.add(batch_norm_case({3, 3, 150, 201}, o), kThreads);
    }
    cases.add(batch_norm_case({3001, 33}, {.tail = tail}), kThreads);
  }

  cases.add(layer_norm_case({3, 7}, {7}));
  cases.add(layer_norm_case({2, 3, 5}, {3, 5}));
  cases.add(layer_norm_case({2, 33}, {33}));
  cases.add(layer_norm_case({5}, {5}));
  cases.add(layer_norm_case({4, 1}, {1}));
  cases.add(layer_norm_case({3, 31}, {31}));
  cases.add(layer_norm_case({2, 32}, {32}));

  cases.add(layer_norm_case({3, 7}, {7}, false, true));
  cases.add(layer_norm_case({3, 7}, {7}, true, false));
  cases.add(layer_norm_case({3, 33}, {33}, false, false));

  cases.add(layer_norm_case({3, 2, 384}, {384}), kValues);
  cases.add(layer_norm_case({2, 5001}, {5001}), kValues);
  cases.add(layer_norm_case({1001, 128}, {128}), kThreads);
  cases.add(layer_norm_case({301, 33}, {33}), kThreads);
  cases.add(layer_norm_case({67, 1024}, {1024}), kThreads);

  cases.add(add_layer_norm_case({3, 7}, {7}));
  cases.add(add_layer_norm_case({2, 3, 32}, {3, 32}));
  cases.add(add_layer_norm_case({301, 33}, {33}), kThreads);

  for (const Shape& shape : {Shape{2, 6, 3}, Shape{3, 6, 2, 3}, Shape{2, 4, 1, 3, 2}}) {
    cases.add(group_norm_case(shape, {.groups = 2}));
    cases.add(group_norm_case(shape, {}));
  }
  cases.add(group_norm_case({3, 8}, {.groups = 2}));
  cases.add(group_norm_case({2, 4, 3}, {.groups = 1}));
  cases.add(group_norm_case({2, 4, 3}, {.groups = 4, .weight = false}));
  cases.add(group_norm_case({2, 4, 3}, {.groups = 2, .bias = false}));
  cases.add(group_norm_case({2, 4, 3}, {.weight = false, .bias = false}));
  // The device error of a permuted input is that of permute.
  const unsigned of_permuted = kValues | kGradients | kThreads;
  cases.add(group_norm_case({3, 6, 2, 3}, {.groups = 2, .channels_last = true}), of_permuted);
  cases.add(group_norm_case({2, 16, 2, 2}, {.groups = 4, .channels_last = true}), of_permuted);  // 16-byte accesses
  cases.add(group_norm_case({3, 6, 2, 3}, {.channels_last = true}), of_permuted);
  for (const bool channels_last : {false, true}) {
    for (const std::optional<int64_t> groups : {std::optional<int64_t>(4), std::optional<int64_t>()}) {
      const GroupOptions o = {.groups = groups, .channels_last = channels_last};
      cases.add(group_norm_case({5, 36, 3, 31}, o), kValues);
      cases.add(group_norm_case({5, 40, 3, 31}, o), kValues);
      cases.add(group_norm_case({3, 12, 50, 67}, o), kThreads);
      cases.add(group_norm_case({33, 36, 7, 9}, o), kThreads);
    }
  }

  cases.add(rms_norm_case({3, 7}, {7}));
  cases.add(rms_norm_case({2, 3, 5}, {3, 5}));
  cases.add(rms_norm_case({4, 1}, {1}));
  cases.add(rms_norm_case({2, 32}, {32}));
  cases.add(rms_norm_case({3, 33}, {33}, false));
  cases.add(rms_norm_case({3, 2, 384}, {384}), kValues);
  cases.add(rms_norm_case({2, 5001}, {5001}), kValues);
  cases.add(rms_norm_case({1001, 128}, {128}), kThreads);
  cases.add(rms_norm_case({301, 33}, {33}), kThreads);

  const Tensor mean = zeros({64}), var = ones({64});
  const auto images = [] { return TensorList{image({32, 64, 32, 32}), ones({64}), zeros({64})}; };
  cases.benchmark("batch_norm", images,
                  [=](const TensorList& in) { return nhwc(batch_norm(nchw(in[0]), mean, var, in[1], in[2], true)); });
  cases.benchmark("batch_norm row-major", {{32, 64, 32, 32}, {64}, {64}},
                  [=](const TensorList& in) { return batch_norm(in[0], mean, var, in[1], in[2], true); });
  cases.benchmark("batch_norm_relu", images, [=](const TensorList& in) {
    return nhwc(batch_norm_relu(nchw(in[0]), mean, var, in[1], in[2], true));
  });
  cases.benchmark("batch_norm_relu6", images, [=](const TensorList& in) {
    return nhwc(batch_norm_relu6(nchw(in[0]), mean, var, in[1], in[2], true));
  });
  cases.benchmark(
      "batch_norm_relu small",
      [] {
        return TensorList{image({32, 512, 4, 4}), ones({512}), zeros({512})};
      },
      [](const TensorList& in) { return nhwc(batch_norm_relu(nchw(in[0]), {}, {}, in[1], in[2], true)); });
  cases.benchmark(
      "batch_norm_add_relu",
      [] {
        return TensorList{image({32, 64, 32, 32}), ones({64}), zeros({64}), image({32, 64, 32, 32})};
      },
      [=](const TensorList& in) {
        return nhwc(batch_norm_add_relu(nchw(in[0]), nchw(in[3]), mean, var, in[1], in[2], true));
      });
  cases.benchmark("group_norm", images,
                  [](const TensorList& in) { return nhwc(group_norm(nchw(in[0]), 8, in[1], in[2])); });
  cases.benchmark("group_norm row-major", {{32, 64, 32, 32}, {64}, {64}},
                  [](const TensorList& in) { return group_norm(in[0], 8, in[1], in[2]); });
  cases.benchmark("instance_norm", images,
                  [](const TensorList& in) { return nhwc(instance_norm(nchw(in[0]), {}, {}, in[1], in[2])); });
  cases.benchmark("sync_batch_norm", images, [=](const TensorList& in) {
    return nhwc(sync_batch_norm(nchw(in[0]), mean, var, in[1], in[2], std::make_shared<SingleRank>()));
  });
  cases.benchmark("layer_norm 128", {{2048, 128}, {128}, {128}},
                  [](const TensorList& in) { return layer_norm(in[0], {128}, in[1], in[2]); });
  cases.benchmark("layer_norm 384", {{1024, 384}, {384}, {384}},
                  [](const TensorList& in) { return layer_norm(in[0], {384}, in[1], in[2]); });
  cases.benchmark("rms_norm 384", {{1024, 384}, {384}},
                  [](const TensorList& in) { return rms_norm(in[0], {384}, in[1]); });
  cases.benchmark("add_layer_norm 384", {{1024, 384}, {384}, {384}, {1024, 384}},
                  [](const TensorList& in) { return add_layer_norm(in[0], in[3], {384}, in[1], in[2]).second; });
}

}  // namespace tandem::testing
