// Activation functions as layers.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/activation.h>

namespace tandem { inline namespace v0 { namespace nn {

/// The activation that a layer applies to its result, in one pass where a fused operation exists: ReLU and GELU of
/// Linear, ReLU of Conv2d, ReLU and ReLU6 of batch norms.
enum class Activation {
  kNone,      ///< the result
  kRelu,      ///< max(x, 0)
  kRelu6,     ///< min(max(x, 0), 6)
  kGelu,      ///< gelu(x)
  kGeluTanh,  ///< gelu(x) with GeluApproximation::kTanh
};
/// The activation of `input`.
TANDEM_API Tensor activate(const Tensor& input, Activation activation);
/// For extra_repr: ", gelu tanh"; "" for kNone.
TANDEM_API const char* activation_text(Activation activation);

/// max(x, 0).
class TANDEM_API ReLU : public FunctionLayer {
 public:
  ReLU();
};
/// min(max(x, 0), 6).
class TANDEM_API ReLU6 : public FunctionLayer {
 public:
  ReLU6();
};
/// x sigmoid(x).
class TANDEM_API SiLU : public FunctionLayer {
 public:
  SiLU();
};
/// tanh(x).
class TANDEM_API Tanh : public FunctionLayer {
 public:
  Tanh();
};
/// 1 / (1 + e^-x).
class TANDEM_API Sigmoid : public FunctionLayer {
 public:
  Sigmoid();
};
/// log(sigmoid(x)).
class TANDEM_API LogSigmoid : public FunctionLayer {
 public:
  LogSigmoid();
};
/// The scaled exponential linear unit, as in selu.
class TANDEM_API SELU : public FunctionLayer {
 public:
  SELU();
};
/// x tanh(softplus(x)).
class TANDEM_API Mish : public FunctionLayer {
 public:
  Mish();
};
/// x / (1 + |x|).
class TANDEM_API Softsign : public FunctionLayer {
 public:
  Softsign();
};
/// x relu6(x + 3) / 6.
class TANDEM_API Hardswish : public FunctionLayer {
 public:
  Hardswish();
};
/// relu6(x + 3) / 6.
class TANDEM_API Hardsigmoid : public FunctionLayer {
 public:
  Hardsigmoid();
};

/// min(max(x, min_val), max_val).
class TANDEM_API Hardtanh : public FunctionLayer {
 public:
  /// The bounds.
  explicit Hardtanh(double min_val = -1, double max_val = 1);
};

/// x if x > 0, else negative_slope x.
class TANDEM_API LeakyReLU : public FunctionLayer {
 public:
  /// The slope below 0.
  explicit LeakyReLU(double negative_slope = 0.01);
};

/// x if x > 0, else alpha (e^x - 1).
class TANDEM_API ELU : public FunctionLayer {
 public:
  /// The negative of the limit at -inf.
  explicit ELU(double alpha = 1);
};

/// x if x > 0, else alpha (e^(x / alpha) - 1).
class TANDEM_API CELU : public FunctionLayer {
 public:
  /// The negative of the limit at -inf.
  explicit CELU(double alpha = 1);
};

/// log(1 + e^(beta x)) / beta; x if beta x > threshold.
class TANDEM_API Softplus : public FunctionLayer {
 public:
  /// As in softplus.
  explicit Softplus(double beta = 1, double threshold = 20);
};

/// a sigmoid(b) for the halves a and b of a dimension.
class TANDEM_API GLU : public FunctionLayer {
 public:
  /// The dimension; a negative one counts from the end.
  explicit GLU(int64_t dim = -1);
};

/// Softmax over a dimension.
class TANDEM_API Softmax : public FunctionLayer {
 public:
  /// The dimension; a negative one counts from the end.
  explicit Softmax(int64_t dim);
};

/// Softmax of -x over a dimension.
class TANDEM_API Softmin : public FunctionLayer {
 public:
  /// The dimension; a negative one counts from the end.
  explicit Softmin(int64_t dim);
};

/// The logarithm of softmax over a dimension.
class TANDEM_API LogSoftmax : public FunctionLayer {
 public:
  /// The dimension; a negative one counts from the end.
  explicit LogSoftmax(int64_t dim);
};

/// x Phi(x), where Phi is the distribution function of the standard normal distribution, or its tanh approximation.
class TANDEM_API GELU : public FunctionLayer {
 public:
  /// The form of the function.
  explicit GELU(GeluApproximation approximation = GeluApproximation::kNone);
};

/// x if x > 0, else weight x. `weight` [num_parameters], float32, is trained.
class TANDEM_API PReLU : public Layer {
 public:
  /// One weight, or one per channel (dimension 1). `init` is the initial value. Throws ValueError unless num_parameters
  /// is at least 1.
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [num_parameters]
};

}}}  // namespace tandem::v0::nn
