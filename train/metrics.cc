#include <tandem/train/metrics.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/error.h>
#include <tandem/base/host_memory.h>
#include <tandem/base/math.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/factories.h>
#include <tandem/train/over_ranks.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Checks targets [N] and scores [N, C], or classes [N]. Returns whether they are scores.
bool check_predictions(const char* metric, const Tensor& preds, const Tensor& target) {
  TANDEM_CHECK(StateError, preds.defined() && target.defined(), metric, ": ", preds.defined() ? "target" : "preds",
               " is undefined");
  const bool has_scores = is_floating_point(preds.dtype());
  TANDEM_CHECK(DTypeError, has_scores || preds.dtype() == kInt64, metric, ": preds is ", preds.dtype(),
               ", expected scores of a floating dtype, or classes as int64");
  TANDEM_CHECK(DTypeError, target.dtype() == kInt64, metric, ": target is ", target.dtype(), ", expected int64");
  TANDEM_CHECK(ShapeError, target.dim() == 1 && preds.dim() == (has_scores ? 2 : 1) && preds.size(0) == target.size(0),
               metric, ": preds ", preds.shape(), " and target ", target.shape(),
               " do not fit, expected scores [N, C] or ", "classes [N], and target [N]");
  TANDEM_CHECK(DeviceError, preds.device() == target.device(), metric, ": preds is on ", preds.device(), ", target on ",
               target.device(), ", expected one device");
  return has_scores;
}

/// Throws IndexError for a class outside [0, num_classes), other than ignore_index.
void check_classes(const char* metric, const char* argument, const std::vector<int64_t>& classes, int64_t num_classes,
                   std::optional<int64_t> ignore_index = {}) {
  for (size_t i = 0; i < classes.size(); ++i) {
    TANDEM_CHECK(IndexError, (classes[i] >= 0 && classes[i] < num_classes) || classes[i] == ignore_index, metric, ": ",
                 argument, "[", i, "] is ", classes[i], ", expected a class in [0, ", num_classes, ")");
  }
}

}  // namespace

Accuracy::Accuracy(AccuracyOptions options) : options_(std::move(options)) {
  TANDEM_CHECK(ValueError, options_.top_k >= 1, "Accuracy: top_k is ", options_.top_k, ", expected at least 1");
}

void Accuracy::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  const bool has_scores = check_predictions("Accuracy", preds, target);
  const int64_t num_classes = has_scores ? preds.size(1) : 1;
  TANDEM_CHECK(ValueError, options_.top_k <= num_classes, "Accuracy: top_k is ", options_.top_k, ", expected at most ",
               num_classes, has_scores ? ", the number of classes of preds" : " because preds are classes");
  const auto predicted = (has_scores ? topk(preds, options_.top_k, 1).indices : preds).to_vector<int64_t>();
  const auto expected = target.to_vector<int64_t>();
  if (has_scores) check_classes("Accuracy", "target", expected, num_classes, options_.ignore_index);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == options_.ignore_index) continue;
    const auto begin = predicted.begin() + static_cast<int64_t>(i) * options_.top_k;
    correct_ += std::count(begin, begin + options_.top_k, expected[i]);
    ++total_;
  }
}

double Accuracy::compute() const {
  std::array counts = {correct_, total_};
  sum_over_ranks(counts, options_.group, "Accuracy");
  return counts[1] == 0 ? kNan : static_cast<double>(counts[0]) / static_cast<double>(counts[1]);
}

void Accuracy::reset() { correct_ = total_ = 0; }

Perplexity::Perplexity(PerplexityOptions options) : options_(std::move(options)), loss_({.group = options_.group}) {}

void Perplexity::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  TANDEM_CHECK(StateError, preds.defined() && target.defined(), "Perplexity: ", preds.defined() ? "target" : "preds",
               " is undefined");
  TANDEM_CHECK(ShapeError, preds.dim() >= 1 && target.dim() == preds.dim() - 1, "Perplexity: preds ", preds.shape(),
               " and target ", target.shape(), " do not fit, expected preds [..., C] and target [...]");
  for (int64_t d = 0; d < target.dim(); ++d) {
    TANDEM_CHECK(ShapeError, preds.size(d) == target.size(d), "Perplexity: preds ", preds.shape(), " and target ",
                 target.shape(), " do not fit, expected preds [..., C] and target [...]");
  }
  TANDEM_CHECK(DTypeError, is_floating_point(preds.dtype()), "Perplexity: preds is ", preds.dtype(),
               ", expected floating-point logits");
  TANDEM_CHECK(DTypeError, target.dtype() == kInt64, "Perplexity: target is ", target.dtype(), ", expected int64");
  const auto tokens = target.to_vector<int64_t>();
  check_classes("Perplexity", "target", tokens, preds.size(-1), options_.ignore_index);
  const Tensor logits = preds.dtype() == kFloat64 ? preds : preds.to(kFloat32);
  const auto losses = cross_entropy(logits.reshape({target.numel(), preds.size(-1)}), target.flatten(),
                                    {.ignore_index = options_.ignore_index.value_or(-1), .reduction = Reduction::kNone})
                          .to_vector<double>();
  for (size_t i = 0; i < losses.size(); ++i) {
    if (tokens[i] != options_.ignore_index) loss_.update(losses[i]);
  }
}

double Perplexity::compute() const { return std::exp(loss_.compute()); }

void Perplexity::reset() { loss_.reset(); }

ConfusionMatrix::ConfusionMatrix(int64_t num_classes, ConfusionMatrixOptions options)
    : options_(std::move(options)), num_classes_(num_classes) {
  TANDEM_CHECK(ValueError, num_classes >= 1, "ConfusionMatrix: num_classes is ", num_classes, ", expected at least 1");
  reset();
}

void ConfusionMatrix::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  const bool has_scores = check_predictions("ConfusionMatrix", preds, target);
  TANDEM_CHECK(ShapeError, !has_scores || preds.size(1) == num_classes_, "ConfusionMatrix: preds ", preds.shape(),
               " has scores of ", preds.size(1), " classes, expected num_classes ", num_classes_);
  const auto predicted = (has_scores ? argmax(preds, 1) : preds).to_vector<int64_t>();
  const auto expected = target.to_vector<int64_t>();
  check_classes("ConfusionMatrix", "preds", predicted, num_classes_);
  check_classes("ConfusionMatrix", "target", expected, num_classes_, options_.ignore_index);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == options_.ignore_index) continue;
    ++counts_[static_cast<size_t>(expected[i] * num_classes_ + predicted[i])];
  }
}

Tensor ConfusionMatrix::compute() const {
  std::vector<int64_t> counts = counts_;
  sum_over_ranks(counts, options_.group, "ConfusionMatrix");
  const Tensor result = empty({num_classes_, num_classes_}, {kInt64});
  std::copy(counts.begin(), counts.end(), result.data<int64_t>());
  return result;
}

void ConfusionMatrix::reset() {
  const int64_t size = saturating_mul(num_classes_, num_classes_);
  with_host_memory("ConfusionMatrix", saturating_mul(size, sizeof(int64_t)),
                   [&] { counts_.assign(static_cast<size_t>(size), 0); });
}

namespace {

/// Counts with their sums over rows and columns.
struct Counts {
  Counts(const char* op, const Tensor& counts) {
    TANDEM_CHECK(StateError, counts.defined(), op, ": counts is undefined");
    TANDEM_CHECK(ShapeError, counts.dim() == 2 && counts.size(0) == counts.size(1), op, ": counts has shape ",
                 counts.shape(), ", expected [C, C]");
    TANDEM_CHECK(DTypeError, counts.dtype() == kInt64, op, ": counts is ", counts.dtype(),
                 ", expected int64; pass the result of ConfusionMatrix::compute()");
    TANDEM_CHECK(DeviceError, counts.device().is_cpu(), op, ": counts is on ", counts.device(), ", expected the CPU");
    size = static_cast<size_t>(counts.size(0));
    values = counts.to_vector<int64_t>();
    samples.resize(size);
    predictions.resize(size);
    for (size_t i = 0; i < values.size(); ++i) {
      samples[i / size] += values[i];
      predictions[i % size] += values[i];
      total += values[i];
    }
  }

  size_t size = 0;
  std::vector<int64_t> values;       ///< row-major
  std::vector<int64_t> samples;      ///< of each class
  std::vector<int64_t> predictions;  ///< of each class
  int64_t total = 0;
};

double quotient(int64_t numerator, int64_t denominator) {
  return denominator == 0 ? 0 : static_cast<double>(numerator) / static_cast<double>(denominator);
}

/// [C]: score(i) for each class i.
template <class Score>
Tensor by_class(const Counts& counts, Score score) {
  const Tensor result = empty({static_cast<int64_t>(counts.size)}, {kFloat64});
  for (size_t i = 0; i < counts.size; ++i) result.data<double>()[i] = score(counts.values[i * counts.size + i], i);
  return result;
}

}  // namespace

Tensor normalize_confusion(const Tensor& counts, ConfusionNormalize normalize) {
  const Counts c("normalize_confusion", counts);
  const Tensor result = empty(counts.shape(), {kFloat64});
  for (size_t i = 0; i < c.values.size(); ++i) {
    int64_t denominator = c.total;
    if (normalize == ConfusionNormalize::kTrue) denominator = c.samples[i / c.size];
    if (normalize == ConfusionNormalize::kPred) denominator = c.predictions[i % c.size];
    result.data<double>()[i] = quotient(c.values[i], denominator);
  }
  return result;
}

Tensor precision(const Tensor& counts) {
  const Counts c("precision", counts);
  return by_class(c, [&](int64_t correct, size_t i) { return quotient(correct, c.predictions[i]); });
}

Tensor recall(const Tensor& counts) {
  const Counts c("recall", counts);
  return by_class(c, [&](int64_t correct, size_t i) { return quotient(correct, c.samples[i]); });
}

Tensor f1_score(const Tensor& counts) {
  const Counts c("f1_score", counts);
  return by_class(c, [&](int64_t correct, size_t i) { return quotient(2 * correct, c.samples[i] + c.predictions[i]); });
}

}}}  // namespace tandem::v0::train
