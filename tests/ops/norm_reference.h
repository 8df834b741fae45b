// Batch and group norm by their formulas, in float64.
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace norm {

enum class Tail { kNone, kRelu, kRelu6, kAddRelu };

/// The operation with that tail.
inline const char* to_string(Tail tail) {
  constexpr const char* kNames[] = {"batch_norm", "batch_norm_relu", "batch_norm_relu6", "batch_norm_add_relu"};
  return kNames[static_cast<int>(tail)];
}

/// Attributes of a batch norm under test.
struct Options {
  bool training = true;
  Tail tail = Tail::kNone;
  bool weight = true;
  bool bias = true;
  bool channels_last = false;
};

inline constexpr double kEps = 1e-2, kMomentum = 0.3;

/// Running statistics for evaluation, different for each channel.
inline Tensor running(int64_t channels, double first, double step, Device device) {
  std::vector<double> values;
  for (int64_t c = 0; c < channels; ++c) values.push_back(first + step * static_cast<double>(c));
  return from_vector<double>(values, {channels}, {kFloat32, device});
}

inline Dense batch_norm_reference(const Dense& x, const Options& o, const Dense* residual, const Dense* weight,
                                  const Dense* bias) {
  const int64_t n = x.shape[0], channels = x.shape[1], inner = x.numel() / n / channels;
  Dense out = x;
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0.5 - 0.25 * static_cast<double>(c), variance = 0.5 + static_cast<double>(c);
    const auto at = [&](int64_t i) { return (i / inner * channels + c) * inner + i % inner; };
    if (o.training) {
      long double sum = 0, squares = 0;  // more precise than the sums under test
      for (int64_t i = 0; i < n * inner; ++i) sum += x[at(i)];
      mean = static_cast<double>(sum / static_cast<long double>(n * inner));
      for (int64_t i = 0; i < n * inner; ++i) squares += (x[at(i)] - mean) * (x[at(i)] - mean);
      variance = static_cast<double>(squares / static_cast<long double>(n * inner));
    }
    for (int64_t i = 0; i < n * inner; ++i) {
      double y = (x[at(i)] - mean) / std::sqrt(variance + kEps);
      if (weight != nullptr) y *= (*weight)[c];
      if (bias != nullptr) y += (*bias)[c];
      if (residual != nullptr) y += (*residual)[at(i)];
      out[at(i)] = o.tail == Tail::kNone ? y : o.tail == Tail::kRelu6 ? std::clamp(y, 0.0, 6.0) : std::max(y, 0.0);
    }
  }
  return out;
}

/// batch_norm, or one of its fused forms.
inline Tensor fused_batch_norm(Tail tail, const Tensor& x, const Tensor& residual, const Tensor& mean,
                               const Tensor& var, const Tensor& weight, const Tensor& bias, bool training,
                               double momentum, double eps) {
  switch (tail) {
    case Tail::kNone: return batch_norm(x, mean, var, weight, bias, training, momentum, eps);
    case Tail::kRelu: return batch_norm_relu(x, mean, var, weight, bias, training, momentum, eps);
    case Tail::kRelu6: return batch_norm_relu6(x, mean, var, weight, bias, training, momentum, eps);
    case Tail::kAddRelu: break;
  }
  return batch_norm_add_relu(x, residual, mean, var, weight, bias, training, momentum, eps);
}

inline Tensor run_batch_norm(const Options& o, const Tensor& x, const Tensor& residual, const Tensor& weight,
                             const Tensor& bias) {
  const int64_t channels = x.defined() ? x.shape()[1] : 1;
  const Device device = x.defined() ? x.device() : Device();
  return fused_batch_norm(o.tail, x, residual, running(channels, 0.5, -0.25, device), running(channels, 0.5, 1, device),
                          weight, bias, o.training, kMomentum, kEps);
}

inline OpCase batch_norm_case(Shape shape, Options o) {
  OpCase op;
  op.name = to_string(o.tail);
  op.inputs = {{"input", shape}};
  if (o.tail == Tail::kAddRelu) op.inputs.push_back({"residual", shape});
  if (o.weight) op.inputs.push_back({.name = "weight", .shape = {shape[1]}, .low = 0.5, .optional = true});
  if (o.bias) op.inputs.push_back({.name = "bias", .shape = {shape[1]}, .optional = true});
  op.terms = o.training ? static_cast<double>(num_elements(shape) / shape[1]) : 1;
  op.tolerance = 8;
  op.names_operands = false;  // the running statistics are listed too
  op.run = [=](const std::vector<Tensor>& in) {
    size_t i = 1;
    const Tensor residual = o.tail == Tail::kAddRelu ? in[i++] : Tensor(), weight = o.weight ? in[i++] : Tensor();
    const Tensor bias = o.bias ? in[i++] : Tensor();
    const auto reorder = [&](const Tensor& t) {
      return o.channels_last && t.defined() ? t.permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2}) : t;
    };
    return run_batch_norm(o, reorder(in[0]), reorder(residual), weight, bias);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    size_t i = 1;
    const Dense* residual = o.tail == Tail::kAddRelu ? &in[i++] : nullptr;
    const Dense* weight = o.weight ? &in[i++] : nullptr;
    return batch_norm_reference(in[0], o, residual, weight, o.bias ? &in[i++] : nullptr);
  };
  return op;
}

/// Attributes of a group norm under test; without `groups` it is an instance norm.
struct GroupOptions {
  std::optional<int64_t> groups = {};
  bool weight = true;
  bool bias = true;
  bool channels_last = false;
};

inline Dense group_norm_reference(const Dense& x, int64_t groups, const Dense* weight, const Dense* bias) {
  const int64_t channels = x.shape[1], inner = x.numel() / x.shape[0] / channels;
  const int64_t values = channels / groups * inner;
  Dense out = x;
  for (int64_t group = 0; group < x.shape[0] * groups; ++group) {
    long double sum = 0, squares = 0;
    for (int64_t i = group * values; i < (group + 1) * values; ++i) sum += x[i];
    const double mean = static_cast<double>(sum / static_cast<long double>(values));
    for (int64_t i = group * values; i < (group + 1) * values; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double variance = static_cast<double>(squares / static_cast<long double>(values));
    for (int64_t i = group * values; i < (group + 1) * values; ++i) {
      const int64_t c = i / inner % channels;
      out[i] = (x[i] - mean) / std::sqrt(variance + kEps);
      if (weight != nullptr) out[i] *= (*weight)[c];
      if (bias != nullptr) out[i] += (*bias)[c];
    }
  }
  return out;
}

inline Tensor run_group_norm(const GroupOptions& o, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return o.groups ? group_norm(x, *o.groups, weight, bias, kEps)
                  : instance_norm(x, {}, {}, weight, bias, true, kMomentum, kEps);
}

inline OpCase group_norm_case(const Shape& shape, GroupOptions o) {
  OpCase op;
  op.name = o.groups ? "group_norm" : "instance_norm";
  op.inputs = {{"input", shape}};
  if (o.weight) op.inputs.push_back({.name = "weight", .shape = {shape[1]}, .low = 0.5, .optional = true});
  if (o.bias) op.inputs.push_back({.name = "bias", .shape = {shape[1]}, .optional = true});
  op.terms = static_cast<double>(
      std::max(num_elements(shape) / shape[0] / o.groups.value_or(shape[1]), num_elements(shape) / shape[1]));
  op.tolerance = 8;
  op.run = [=](const std::vector<Tensor>& in) {
    const Tensor x = o.channels_last ? in[0].permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2}) : in[0];
    return run_group_norm(o, x, o.weight ? in[1] : Tensor(), o.bias ? in.back() : Tensor());
  };
  op.reference = [=](const std::vector<Dense>& in) {
    return group_norm_reference(in[0], o.groups.value_or(shape[1]), o.weight ? &in[1] : nullptr,
                                o.bias ? &in.back() : nullptr);
  };
  return op;
}

}}  // namespace tandem::testing::norm
