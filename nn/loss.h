// Losses as modules. Shapes, dtypes and errors are as for the functions of ops/loss.h.
#pragma once

#include <functional>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/loss.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A loss without tensors of its own: a function of its arguments.
class TANDEM_API FunctionLoss : public Module {
 protected:
  using Function = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;  ///< of two or three tensors
  /// `function` computes the loss.
  explicit FunctionLoss(Function function) : function_(std::move(function)) {}
  /// The loss of the tensors; `c` is undefined for functions of two tensors.
  Tensor call(const Tensor& a, const Tensor& b, const Tensor& c = {}) const;

 private:
  Function function_;
};

/// A FunctionLoss of two tensors.
class TANDEM_API PairLoss : public FunctionLoss {
 public:
  /// The loss, with the reduction of the constructor's argument.
  Tensor operator()(const Tensor& input, const Tensor& target) const { return call(input, target); }

 protected:
  using FunctionLoss::FunctionLoss;  ///< with the function
};

/// A FunctionLoss of three tensors.
class TANDEM_API TripleLoss : public FunctionLoss {
 public:
  /// In the order of the function's arguments.
  Tensor operator()(const Tensor& first, const Tensor& second, const Tensor& third) const {
    return call(first, second, third);
  }

 protected:
  using FunctionLoss::FunctionLoss;  ///< with the function
};

/// mse_loss of (input, target).
class TANDEM_API MSELoss : public PairLoss {
 public:
  /// As in mse_loss.
  explicit MSELoss(Reduction reduction = Reduction::kMean);
};

/// l1_loss of (input, target).
class TANDEM_API L1Loss : public PairLoss {
 public:
  /// As in l1_loss.
  explicit L1Loss(Reduction reduction = Reduction::kMean);
};

/// smooth_l1_loss of (input, target).
class TANDEM_API SmoothL1Loss : public PairLoss {
 public:
  /// As in smooth_l1_loss.
  explicit SmoothL1Loss(Reduction reduction = Reduction::kMean, double beta = 1);
};

/// huber_loss of (input, target).
class TANDEM_API HuberLoss : public PairLoss {
 public:
  /// As in huber_loss.
  explicit HuberLoss(Reduction reduction = Reduction::kMean, double delta = 1);
};

/// kl_div of (input, target).
class TANDEM_API KLDivLoss : public PairLoss {
 public:
  /// As in kl_div.
  explicit KLDivLoss(Reduction reduction = Reduction::kMean, bool log_target = false);
};

/// gaussian_nll_loss of (input, target, var).
class TANDEM_API GaussianNLLLoss : public TripleLoss {
 public:
  /// As in gaussian_nll_loss.
  explicit GaussianNLLLoss(bool full = false, double eps = 1e-6, Reduction reduction = Reduction::kMean);
};

/// cosine_embedding_loss of (input1, input2, target).
class TANDEM_API CosineEmbeddingLoss : public TripleLoss {
 public:
  /// As in cosine_embedding_loss.
  explicit CosineEmbeddingLoss(double margin = 0, Reduction reduction = Reduction::kMean);
};

/// triplet_margin_loss of (anchor, positive, negative).
class TANDEM_API TripletMarginLoss : public TripleLoss {
 public:
  using Options = TripletMarginLossOptions;  ///< of the constructor
  /// As in triplet_margin_loss.
  explicit TripletMarginLoss(const TripletMarginLossOptions& options = {});
};

/// cross_entropy. The weight of the options is a buffer.
class TANDEM_API CrossEntropyLoss : public Module {
 public:
  using Options = CrossEntropyOptions;  ///< of the constructor
  /// As in cross_entropy.
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {});
  /// The loss.
  Tensor operator()(const Tensor& input, const Tensor& target);

  Tensor& weight;  ///< [C], a buffer; may be undefined

 private:
  CrossEntropyOptions options_;
};

/// nll_loss. The weight of the options is a buffer.
class TANDEM_API NLLLoss : public Module {
 public:
  using Options = NllLossOptions;  ///< of the constructor
  /// As in nll_loss.
  explicit NLLLoss(const NllLossOptions& options = {});
  /// The loss.
  Tensor operator()(const Tensor& input, const Tensor& target);

  Tensor& weight;  ///< [C], a buffer; may be undefined

 private:
  NllLossOptions options_;
};

/// Options of BCELoss.
struct BCELossOptions {
  Tensor weight = {};                      ///< factor of each loss, broadcast; a buffer
  Reduction reduction = Reduction::kMean;  ///< of the losses
};

/// binary_cross_entropy.
class TANDEM_API BCELoss : public Module {
 public:
  using Options = BCELossOptions;  ///< of the constructor
  /// As in binary_cross_entropy.
  explicit BCELoss(const BCELossOptions& options = {});
  /// The loss.
  Tensor operator()(const Tensor& input, const Tensor& target);

  Tensor& weight;  ///< a buffer; may be undefined

 private:
  Reduction reduction_;
};

/// Options of BCEWithLogitsLoss.
struct BCEWithLogitsLossOptions {
  Tensor weight = {};                      ///< factor of each loss, broadcast; a buffer
  Reduction reduction = Reduction::kMean;  ///< of the losses
  Tensor pos_weight = {};                  ///< factor of the losses of positive targets, broadcast; a buffer
};

/// binary_cross_entropy_with_logits.
class TANDEM_API BCEWithLogitsLoss : public Module {
 public:
  using Options = BCEWithLogitsLossOptions;  ///< of the constructor
  /// As in binary_cross_entropy_with_logits.
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options = {});
  /// The loss.
  Tensor operator()(const Tensor& input, const Tensor& target);

  Tensor& weight;      ///< a buffer; may be undefined
  Tensor& pos_weight;  ///< a buffer; may be undefined

 private:
  Reduction reduction_;
};

}}}  // namespace tandem::v0::nn
