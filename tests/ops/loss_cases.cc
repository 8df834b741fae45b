#include <algorithm>
#include <cmath>
#include <vector>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/random.h>
#include <tandem/ops/softmax.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// cross_entropy in float64.
double reference(const Dense& logits, const Dense& labels) {
  const int64_t n = logits.shape[0], classes = logits.shape[1];
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    double max = logits[i * classes], exponentials = 0;
    for (int64_t j = 0; j < classes; ++j) max = std::max(max, logits[i * classes + j]);
    for (int64_t j = 0; j < classes; ++j) exponentials += std::exp(logits[i * classes + j] - max);
    sum += std::log(exponentials) + max - logits[i * classes + static_cast<int64_t>(labels[i])];
  }
  return sum / static_cast<double>(n);
}

OpCase cross_entropy_case(int64_t n, int64_t classes) {
  OpCase op;
  op.name = "cross_entropy";
  op.terms = static_cast<double>(classes);
  op.inputs = {{"logits", {n, classes}, -4, 4}, {"labels", {n}, 0, static_cast<double>(classes), kInt64, false}};
  op.run = [](const std::vector<Tensor>& in) { return cross_entropy(in[0], in[1]); };
  op.reference = [](const std::vector<Dense>& in) {
    Dense out = dense_zeros({});
    out[0] = reference(in[0], in[1]);
    return out;
  };
  return op;
}

OpCase nll_loss_case(int64_t n, int64_t classes) {
  OpCase op;
  op.name = "nll_loss";
  op.terms = static_cast<double>(n);
  op.inputs = {{"log_probs", {n, classes}, -4, 0}, {"labels", {n}, 0, static_cast<double>(classes), kInt64, false}};
  op.run = [](const std::vector<Tensor>& in) { return nll_loss(in[0], in[1]); };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = dense_zeros({});
    for (int64_t i = 0; i < n; ++i)
      out[0] -= in[0][i * classes + static_cast<int64_t>(in[1][i])] / static_cast<double>(n);
    return out;
  };
  return op;
}

OpCase mse_loss_case(const Shape& shape) {
  OpCase op;
  op.name = "mse_loss";
  op.terms = static_cast<double>(num_elements(shape));
  op.inputs = {{"input", shape}, {"target", shape}};
  op.run = [](const std::vector<Tensor>& in) { return mse_loss(in[0], in[1]); };
  op.reference = [](const std::vector<Dense>& in) {
    Dense out = dense_zeros({});
    const int64_t n = in[0].num_elements();
    for (int64_t i = 0; i < n; ++i) out[0] += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]) / static_cast<double>(n);
    return out;
  };
  return op;
}

TensorList scores() { return {randn({2048, 65})}; }
TensorList wide_scores() { return {randn({256, 8192})}; }

}  // namespace

TANDEM_OP_CASES(loss) {
  const auto policy = CastPolicy::kFloat32;
  cases.op("Tensor cross_entropy(const Tensor& logits, const Tensor& labels)", policy,
           {cross_entropy_case(3, 7), cross_entropy_case(3, 5), cross_entropy_case(7, 3), cross_entropy_case(1, 1),
            cross_entropy_case(3, 33), cross_entropy_case(31, 2)});
  cases.op("Tensor nll_loss(const Tensor& log_probs, const Tensor& labels)", policy,
           {nll_loss_case(3, 7), nll_loss_case(3, 5), nll_loss_case(7, 3), nll_loss_case(1, 1), nll_loss_case(3, 33)});
  cases.op("Tensor mse_loss(const Tensor& input, const Tensor& target)", policy,
           {mse_loss_case({3, 7}), mse_loss_case({3, 5}), mse_loss_case({7}), mse_loss_case({3, 33}),
            mse_loss_case({2, 3, 4}), mse_loss_case({}), mse_loss_case({1})});
  cases.add(cross_entropy_case(700, 101), kThreads);

  cases.add(nll_loss_case(700, 101), kThreads);

  cases.add(mse_loss_case({70001}), kThreads);

  for (const auto& input : {scores, wide_scores}) {
    cases.benchmark("softmax", input, [](const TensorList& in) { return softmax(in[0], 1); });
    cases.benchmark("log_softmax", input, [](const TensorList& in) { return log_softmax(in[0], 1); });
  }
  const auto with_labels = [](const TensorList& in) { return cross_entropy(in[0], in[1]); };
  cases.benchmark(
      "cross_entropy",
      [] {
        return TensorList{randn({2048, 65}), randint(0, 65, {2048})};
      },
      with_labels);
  cases.benchmark(
      "cross_entropy",
      [] {
        return TensorList{randn({256, 8192}), randint(0, 8192, {256})};
      },
      with_labels);
  cases.benchmark(
      "nll_loss",
      [] {
        return TensorList{randn({2048, 65}), randint(0, 65, {2048})};
      },
      [](const TensorList& in) { return nll_loss(in[0], in[1]); });
  cases.benchmark(
      "mse_loss",
      [] {
        return TensorList{randn({2048, 1024}), randn({2048, 1024})};
      },
      [](const TensorList& in) { return mse_loss(in[0], in[1]); });
}

}  // namespace tandem::testing
