// Metrics of predictions, exact over the ranks of a process group.
//
// Common to all: update() adds a batch, compute() returns the metric of all data added since the construction or the
// last reset(). Inputs are on any device, of any strides, and are not changed; gradients are not recorded. The state is
// on the CPU: update() copies the data named below from the device and waits for the copy. Not thread-safe.
//
// Ranks. update() does not communicate, so ranks may have different numbers of batches, including zero. With a `group`,
// compute() is collective: one all_reduce of int64, which gives every rank the metric of the samples of all ranks and
// leaves the states as they are. Counts are int64, and sums of float64 are kept in a fixed-point number as wide as the
// range of float64, so nothing is rounded before the last division: the result has the same bits for every distribution
// of the same values over batches and ranks. Without a group it is the metric of this rank's samples.
//
// Each sample must be added once. A DistributedSampler in Mode::kTraining repeats some samples so that all ranks have
// equally many, and these would count twice: evaluate with Mode::kEvaluation, in which every sample is visited by
// exactly one rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

namespace distributed {
class ProcessGroup;
}

namespace train {

/// Options of Accuracy.
struct AccuracyOptions {
  int64_t top_k = 1;  ///< a prediction is correct if the target is among the top_k largest scores
  std::optional<int64_t> ignore_index = {};               ///< targets that are not counted
  std::shared_ptr<distributed::ProcessGroup> group = {};  ///< ranks of compute(); null: this rank only
};

/// Fraction of correct predictions: correct / total, over all samples ("micro" average).
class TANDEM_API Accuracy {
 public:
  /// Throws ValueError unless top_k is at least 1.
  explicit Accuracy(AccuracyOptions options = {});
  /// `preds`: scores [N, C] of a floating dtype, or, if top_k is 1, predicted classes [N], int64. Equal scores are
  /// ranked by ascending class, and NaN is the largest score. `target`: classes [N], int64, on the same device. Copies
  /// 8 N top_k bytes of predicted classes and 8 N bytes of targets to the CPU.
  ///
  /// Throws, without adding anything: ShapeError, DTypeError or DeviceError if the tensors do not fit; ValueError if
  /// top_k is more than C, or not 1 for predicted classes; with scores IndexError naming the first target outside [0,
  /// C), other than ignore_index, and its position.
  void update(const Tensor& preds, const Tensor& target);
  /// NaN without samples. Collective with a group.
  double compute() const;
  /// Removes all samples.
  void reset();

 private:
  AccuracyOptions options_;
  int64_t correct_ = 0;
  int64_t total_ = 0;
};

/// Options of Mean.
struct MeanOptions {
  std::shared_ptr<distributed::ProcessGroup> group = {};  ///< ranks of compute(); null: this rank only
};

/// Weighted mean: sum of value * weight / sum of weight.
class TANDEM_API Mean {
 public:
  explicit Mean(MeanOptions options = {});  ///< of no values yet
  /// Adds a value that counts `weight` times, for example the mean loss of a batch of `weight` samples. Throws
  /// ValueError unless weight is in [0, 2^53].
  void update(double value, int64_t weight = 1);
  /// Adds each element of `values`, of any shape and dtype, with this weight. Copies them to the CPU.
  void update(const Tensor& values, int64_t weight = 1);
  /// NaN if the sum of the weights is 0; otherwise as in IEEE arithmetic, for example NaN if a value was NaN.
  /// Collective with a group.
  double compute() const;
  /// Removes all values.
  void reset();

 private:
  static constexpr int kDigits = 70;
  /// The sum of value * weight in fixed point: digits of 32 bits, the lowest first, in units of 2^-1152; the last one
  /// has the sign. Then the numbers of NaN, infinity and -infinity among the summands, and the sum of the weights.
  using State = std::array<int64_t, kDigits + 4>;
  static void carry(State& state);
  static double rounded_sum(State state);
  void add(double value);

  MeanOptions options_;
  State state_ = {};
  int64_t num_added_ = 0;  ///< since the last carry()
};

/// Options of Perplexity.
struct PerplexityOptions {
  std::optional<int64_t> ignore_index = {};               ///< targets that are not counted, for example padding
  std::shared_ptr<distributed::ProcessGroup> group = {};  ///< ranks of compute(); null: this rank only
};

/// exp of the mean negative log-likelihood of tokens: exp(-mean log softmax(preds)[target]).
class TANDEM_API Perplexity {
 public:
  explicit Perplexity(PerplexityOptions options = {});  ///< of no tokens yet
  /// `preds`: logits [..., C], floating; half types are computed in float32. `target`: tokens [...], int64, on the same
  /// device. Copies 12 bytes per token to the CPU: the target, and the negative log-likelihood as float32 (16 for
  /// float64 logits).
  ///
  /// Throws, without adding anything: ShapeError, DTypeError or DeviceError if the tensors do not fit; IndexError
  /// naming the first target outside [0, C), other than ignore_index, and its position in row-major order.
  void update(const Tensor& preds, const Tensor& target);
  /// NaN without tokens. Collective with a group.
  double compute() const;
  /// Removes all tokens.
  void reset();

 private:
  PerplexityOptions options_;
  Mean loss_;
};

/// Options of ConfusionMatrix.
struct ConfusionMatrixOptions {
  std::optional<int64_t> ignore_index = {};               ///< targets that are not counted
  std::shared_ptr<distributed::ProcessGroup> group = {};  ///< ranks of compute(); null: this rank only
};

/// Numbers of samples by class: element [t, p] counts the samples of class t that were predicted as class p.
class TANDEM_API ConfusionMatrix {
 public:
  /// Throws ValueError unless num_classes is at least 1, OutOfMemory if its square is too large.
  explicit ConfusionMatrix(int64_t num_classes, ConfusionMatrixOptions options = {});
  /// `preds`: scores [N, num_classes], floating, or predicted classes [N], int64. The predicted class of a row of
  /// scores is the first largest one. `target`: classes [N], int64, on the same device. Copies 16 N bytes to the CPU.
  /// Throws the errors of Accuracy::update, and IndexError for predicted classes that are out of range.
  void update(const Tensor& preds, const Tensor& target);
  /// [num_classes, num_classes], int64, on the CPU. Collective with a group.
  Tensor compute() const;
  /// Removes all samples.
  void reset();

 private:
  ConfusionMatrixOptions options_;
  int64_t num_classes_;
  std::vector<int64_t> counts_;
};

/// The divisor of normalize_confusion.
enum class ConfusionNormalize : int8_t {
  kTrue,  ///< the number of samples of the row's class: rows sum to 1
  kPred,  ///< the number of predictions of the column's class: columns sum to 1
  kAll,   ///< the number of all samples
};

/// The counts of ConfusionMatrix::compute as fractions, [C, C] float64; 0 / 0 is 0.
///
/// This function and the next three throw ShapeError unless counts is a square matrix, DTypeError unless it is int64,
/// and DeviceError unless it is on the CPU.
TANDEM_API Tensor normalize_confusion(const Tensor& counts, ConfusionNormalize normalize);
/// For each class, correct predictions / all predictions of the class: [C] float64; 0 / 0 is 0. Counts as above.
TANDEM_API Tensor precision(const Tensor& counts);
/// For each class, correct predictions / samples of the class: [C] float64; 0 / 0 is 0. Counts as above.
TANDEM_API Tensor recall(const Tensor& counts);
/// For each class, the harmonic mean of precision and recall, 2 correct / (samples + predictions): [C] float64; 0 / 0
/// is 0. Counts as above.
TANDEM_API Tensor f1_score(const Tensor& counts);

}  // namespace train

}}  // namespace tandem::v0
