#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// The reduced losses.
Dense reduced(const Dense& losses, Reduction reduction, double count) {
  if (reduction == Reduction::kNone) return losses;
  Dense out = dense_zeros({});
  for (const double loss : losses.values) out[0] += loss;
  if (reduction != Reduction::kSum) out[0] /= count;
  return out;
}

/// cross_entropy, or nll_loss, of input [N, C, inner] with labels or probabilities.
struct ClassCase {
  Shape shape;
  Reduction reduction = Reduction::kMean;
  bool with_weight = false;
  int64_t ignore_index = -100;
  double smoothing = 0;
  bool is_nll = false;
  bool has_probabilities = false;
};

Dense reference(const ClassCase& c, const std::vector<Dense>& in) {
  const int64_t n = c.shape[0], classes = c.shape[1], inner = c.shape.size() > 2 ? c.shape[2] : 1;
  Dense losses = dense_zeros(c.shape.size() > 2 ? Shape{n, inner} : Shape{n});
  double count = 0;
  for (int64_t i = 0; i < n * inner; ++i) {
    const auto at = [&](int64_t j) { return (i / inner * classes + j) * inner + i % inner; };
    double sum = 0;
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(in[0][at(j)]);
    const int64_t label = c.has_probabilities ? -1 : static_cast<int64_t>(in[1][i]);
    if (!c.has_probabilities && label == c.ignore_index) continue;
    const auto weight_of = [&](int64_t j) { return c.with_weight ? in[2][j] : 1.0; };
    for (int64_t j = 0; j < classes; ++j) {
      const double hard = c.has_probabilities ? in[1][at(j)] : j == label ? 1 : 0;
      const double target = (1 - c.smoothing) * hard + c.smoothing / static_cast<double>(classes);
      losses[i] -= weight_of(j) * target * (in[0][at(j)] - (c.is_nll ? 0 : std::log(sum)));
    }
    count += c.has_probabilities ? 1 : weight_of(label);
  }
  return reduced(losses, c.reduction, count);
}

OpCase class_case(const ClassCase& c) {
  OpCase op;
  op.name = c.is_nll ? "nll_loss" : "cross_entropy";
  op.terms = static_cast<double>(num_elements(c.shape));
  Shape labels = c.shape;
  labels.erase(1);
  op.inputs = {{"input", c.shape, -4, 4}, integers("target", labels, static_cast<double>(c.shape[1]))};
  if (c.has_probabilities) op.inputs[1] = {"target", c.shape, 0, 1};
  if (c.with_weight) op.inputs.push_back(optional(constant(positive("weight", {c.shape[1]}))));
  op.run = [c](const Tensors& in) {
    const Tensor weight = c.with_weight ? in[2] : Tensor();
    return c.is_nll ? nll_loss(in[0], in[1], {weight, c.ignore_index, c.reduction})
                    : cross_entropy(in[0], in[1], {weight, c.ignore_index, c.reduction, c.smoothing});
  };
  op.reference = [c](const std::vector<Dense>& in) { return reference(c, in); };
  return op;
}

/// cross_entropy of logits [n, classes].
OpCase cross_entropy_case(int64_t n, int64_t classes) {
  OpCase op = class_case({.shape = {n, classes}});
  op.terms = static_cast<double>(classes);
  return op;
}

OpCase nll_loss_case(int64_t n, int64_t classes) {
  OpCase op = class_case({.shape = {n, classes}, .is_nll = true});
  op.terms = static_cast<double>(n);
  return op;
}

/// A loss whose losses have the shape of the first input, one for each element.
OpCase elementwise_case(const std::string& name, std::vector<Input> inputs,
                        std::function<Tensor(const Tensors&, Reduction)> run, Reduction reduction = Reduction::kMean) {
  OpCase op;
  op.name = name;
  op.inputs = std::move(inputs);
  op.terms = static_cast<double>(std::max<int64_t>(1, num_elements(op.inputs[0].shape)));
  op.run = [=](const Tensors& in) { return run(in, reduction); };
  op.reference = in_float64(op);
  return op;
}

/// A function of rows of the last dimension.
OpCase rows_case(const char* name, std::vector<Input> inputs, std::function<Tensor(const Tensors&)> run) {
  OpCase op;
  op.name = name;
  op.terms = static_cast<double>(2 * inputs[0].shape.back());
  op.inputs = std::move(inputs);
  op.run = std::move(run);
  op.reference = in_float64(op);
  op.tolerance = 16;
  return op;
}

void add_classification(OpCases& cases) {
  const auto policy = CastPolicy::kFloat32;
  using enum Reduction;
  cases.op("Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& options = {})",
           policy,
           {cross_entropy_case(3, 7), cross_entropy_case(3, 5), cross_entropy_case(7, 3), cross_entropy_case(1, 1),
            cross_entropy_case(3, 33), cross_entropy_case(31, 2), class_case({.shape = {9, 3}, .ignore_index = 1}),
            class_case({.shape = {9, 3}, .with_weight = true, .ignore_index = 2, .smoothing = 0.3}),
            class_case({.shape = {5, 3}, .with_weight = true, .smoothing = 0.3, .has_probabilities = true})});
  cases.op("Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& options = {})", policy,
           {nll_loss_case(3, 7), nll_loss_case(3, 5), nll_loss_case(7, 3), nll_loss_case(1, 1), nll_loss_case(3, 33),
            class_case({.shape = {9, 3, 2}, .with_weight = true, .ignore_index = 1, .is_nll = true})});
  cases.add(cross_entropy_case(3, 32));  // 16-byte accesses on GPUs
  cases.add(cross_entropy_case(3, 4104), kValues);
  cases.add(cross_entropy_case(700, 101), kThreads);
  cases.add(nll_loss_case(700, 101), kThreads);
  for (const Reduction reduction : {kNone, kSum, kMean}) {
    for (const bool weight : {false, true}) {
      for (const ClassCase& c :
           {ClassCase{.shape = {4, 5, 2}, .ignore_index = 3}, ClassCase{.shape = {4, 5}, .smoothing = 0.2},
            ClassCase{.shape = {4, 5, 2}, .ignore_index = 3, .smoothing = 0.2},
            ClassCase{.shape = {4, 3}, .ignore_index = 2, .is_nll = true},
            ClassCase{.shape = {3, 5, 2}, .has_probabilities = true}}) {
        ClassCase varied = c;
        varied.reduction = reduction;
        varied.with_weight = weight;
        cases.add(class_case(varied), kValues | kGradients);
      }
    }
  }
  OpCase vector = cross_entropy_case(1, 5);
  vector.inputs = {{"input", {5}, -4, 4}, integers("target", {}, 5)};
  vector.reference = [](const std::vector<Dense>& in) { return reference({.shape = {1, 5}}, in); };
  cases.add(vector);
}

void add_elementwise(OpCases& cases) {
  const auto policy = CastPolicy::kFloat32;
  struct Loss {
    const char* declaration;
    std::vector<Input> inputs;
    std::function<Tensor(const Tensors&, Reduction)> run;
  };
  const Shape shape = {3, 7};
  const std::vector<Input> two = {{"input", shape}, {"target", shape}};
  const Input probability = {"input", shape, 0.1, 0.9}, target = {"target", shape, 0.1, 0.9};
  const Input weight = optional(positive("weight", {7})), pos_weight = optional(positive("pos_weight", {3, 1}));
  const Loss losses[] = {
      {"Tensor mse_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean)", two,
       [](const Tensors& x, Reduction r) { return mse_loss(x[0], x[1], r); }},
      {"Tensor l1_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean)", two,
       [](const Tensors& x, Reduction r) { return l1_loss(x[0], x[1], r); }},
      {"Tensor smooth_l1_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, double beta = 1)",
       two, [](const Tensors& x, Reduction r) { return smooth_l1_loss(x[0], x[1], r, 0.75); }},
      {"Tensor huber_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, double delta = 1)", two,
       [](const Tensors& x, Reduction r) { return huber_loss(x[0], x[1], r, 1.25); }},
      {"Tensor binary_cross_entropy(Tensor input, Tensor target, Tensor weight = {}, Reduction reduction = "
       "Reduction::kMean)",
       {probability, target, weight},
       [](const Tensors& x, Reduction r) { return binary_cross_entropy(x[0], x[1], x[2], r); }},
      {"Tensor binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor weight = {}, Reduction reduction = "
       "Reduction::kMean, Tensor pos_weight = {})",
       {{"input", shape, -6, 6}, target, weight, pos_weight},
       [](const Tensors& x, Reduction r) { return binary_cross_entropy_with_logits(x[0], x[1], x[2], r, x[3]); }},
      {"Tensor kl_div(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, bool log_target = false)",
       {{"input", shape, -4, 0}, target},
       [](const Tensors& x, Reduction r) { return kl_div(x[0], x[1], r); }},
      {"Tensor gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full = false, double eps = 1e-6, "
       "Reduction reduction = Reduction::kMean)",
       {two[0], two[1], positive("var", shape)},
       [](const Tensors& x, Reduction r) { return gaussian_nll_loss(x[0], x[1], x[2], true, 1e-3, r); }}};
  for (const Loss& loss : losses) {
    const std::string declaration = loss.declaration, name = declaration.substr(7, declaration.find('(') - 7);
    cases.op(declaration, policy, {elementwise_case(name, loss.inputs, loss.run)});
    for (const Reduction reduction : {Reduction::kNone, Reduction::kSum}) {
      cases.add(elementwise_case(name, loss.inputs, loss.run, reduction), kValues | kGradients);
    }
    std::vector<Input> scalars = loss.inputs, many = loss.inputs;
    for (size_t i = 0; i < many.size(); ++i) {
      scalars[i].shape = {};
      if (i < 2 || many[i].shape == shape) many[i].shape = {301, 101};
      if (many[i].shape == Shape{7}) many[i].shape = {101};
      if (many[i].shape == Shape{3, 1}) many[i].shape = {301, 1};
    }
    cases.add(elementwise_case(name, scalars, loss.run), kValues | kGradients);
    cases.add(elementwise_case(name, many, loss.run), kThreads);
  }

  cases.add(elementwise_case(
                "binary_cross_entropy_with_logits", {{"input", shape, -6, 6}, target},
                [](const Tensors& x, Reduction r) { return binary_cross_entropy_with_logits(x[0], x[1], {}, r); }),
            kValues | kGradients);
  cases.add(elementwise_case("kl_div", {{"input", shape, -4, 0}, {"target", shape, -4, 0}},
                             [](const Tensors& x, Reduction r) { return kl_div(x[0], x[1], r, true); }),
            kValues | kGradients);
  cases.add(elementwise_case("kl_div", {{"input", shape, -4, 0}, target},
                             [](const Tensors& x, Reduction) { return kl_div(x[0], x[1], Reduction::kBatchMean); }),
            kValues | kGradients);
  cases.add(elementwise_case("gaussian_nll_loss", {{"input", shape}, {"target", shape}, positive("var", {3, 1})},
                             [](const Tensors& x, Reduction r) {
                               return gaussian_nll_loss(x[0], x[1], x[2].squeeze(1), false, 1e-6, r);
                             }),
            kValues | kGradients);
}

void add_distances(OpCases& cases) {
  const auto policy = CastPolicy::kFloat32;
  const std::vector<Input> two = {{"x1", {5, 7}}, {"x2", {5, 7}}};
  cases.op("Tensor normalize(Tensor input, double p = 2, int64_t dim = 1, double eps = 1e-12)", policy,
           {rows_case("normalize", {{"input", {5, 7}}}, [](const Tensors& x) { return normalize(x[0], 3); }),
            rows_case("normalize", {{"input", {7}}}, [](const Tensors& x) { return normalize(x[0], 1, 0); })});
  cases.op("Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim = 1, double eps = 1e-8)", policy,
           {rows_case("cosine_similarity", two, [](const Tensors& x) { return cosine_similarity(x[0], x[1]); }),
            {.inputs = {{"x1", {4, 3, 5}}, {"x2", {3, 1}}},
             .run = [](const Tensors& x) { return cosine_similarity(x[0], x[1], -2); }}});
  cases.op("Tensor pairwise_distance(Tensor x1, Tensor x2, double p = 2, double eps = 1e-6, bool keepdim = false)",
           policy,
           {rows_case("pairwise_distance", two, [](const Tensors& x) { return pairwise_distance(x[0], x[1]); }),
            rows_case("pairwise_distance", two,
                      [](const Tensors& x) { return pairwise_distance(x[0], x[1], 1, 0.25, true); })});
  const auto cdist_case = [](double p, const Shape& a, const Shape& b) {
    return rows_case("cdist", {{"x1", a}, {"x2", b}}, [=](const Tensors& x) { return cdist(x[0], x[1], p); });
  };
  cases.op("Tensor cdist(Tensor x1, Tensor x2, double p = 2)", policy,
           {cdist_case(2, {3, 4}, {5, 4}), cdist_case(3, {2, 3, 4}, {2, 5, 4}), cdist_case(1.5, {2, 3, 4}, {5, 4})});
  const auto triplet_case = [](const TripletMarginLossOptions& options) {
    return rows_case("triplet_margin_loss", {{"anchor", {5, 7}}, {"positive", {5, 7}}, {"negative", {5, 7}}},
                     [=](const Tensors& x) { return triplet_margin_loss(x[0], x[1], x[2], options); });
  };
  cases.op(
      "Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, const TripletMarginLossOptions& "
      "options = {})",
      policy,
      {triplet_case({.margin = 1.5, .reduction = Reduction::kNone}),
       triplet_case({.margin = 1.5, .swap = true, .reduction = Reduction::kNone}), triplet_case({.margin = 1.5})});
  const std::vector<Input> pairs = {
      {"input1", {5, 7}}, {"input2", {5, 7}}, {.name = "target", .shape = {5}, .low = -1, .high = 2, .dtype = kInt64}};
  cases.op(
      "Tensor cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, double margin = 0, Reduction "
      "reduction = Reduction::kMean)",
      policy, {rows_case("cosine_embedding_loss", pairs, [](const Tensors& x) {
        return cosine_embedding_loss(x[0], x[1], x[2], 0.1, Reduction::kSum);
      })});
}

}  // namespace

TANDEM_OP_CASES(loss) {
  add_classification(cases);
  add_elementwise(cases);
  add_distances(cases);

  const auto pair = [] { return TensorList{rand({2048, 1024}), rand({2048, 1024})}; };
  const std::pair<const char*, Tensor (*)(const TensorList&)> rows[] = {
      {"l1_loss", [](const TensorList& in) { return l1_loss(in[0], in[1]); }},
      {"huber_loss", [](const TensorList& in) { return huber_loss(in[0], in[1]); }},
      {"binary_cross_entropy", [](const TensorList& in) { return binary_cross_entropy(in[0], in[1].detach()); }},
      {"kl_div", [](const TensorList& in) { return kl_div(in[0], in[1].detach()); }},
      {"gaussian_nll_loss", [](const TensorList& in) { return gaussian_nll_loss(in[0], in[0].detach(), in[1]); }},
      {"normalize", [](const TensorList& in) { return normalize(in[0]); }},
      {"cosine_similarity", [](const TensorList& in) { return cosine_similarity(in[0], in[1]); }},
      {"pairwise_distance", [](const TensorList& in) { return pairwise_distance(in[0], in[1]); }},
      {"cdist", [](const TensorList& in) { return cdist(in[0].narrow(0, 0, 64), in[1].narrow(0, 0, 64)); }},
      {"triplet_margin_loss", [](const TensorList& in) { return triplet_margin_loss(in[0], in[1], in[0] * 2); }},
      {"cosine_embedding_loss",
       [](const TensorList& in) { return cosine_embedding_loss(in[0], in[1], ones({2048})); }}};
  for (const auto& [name, run] : rows) cases.benchmark(name, pair, run);
}

}  // namespace tandem::testing
