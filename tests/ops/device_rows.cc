#include <tandem/tests/ops/device_rows.h>

#include <iterator>

#include <tandem/ops/activation.h>
#include <tandem/ops/addmm_split.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/comm.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/embedding.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/move.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>

namespace tandem::testing {

namespace {

using In = std::vector<Tensor>;
using Rows = std::vector<OpRow>;

// Sizes are small, but so that each kernel that can need scratch memory does in one of its rows.

// --- operands ----------------------------------------------------------------------------------------------------------------

const std::vector<Input> kInput = {{"input", {3, 7}}};
const std::vector<Input> kA = {{"a", {3, 7}}};
const std::vector<Input> kB = {{"b", {3, 7}}};
const std::vector<Input> kAB = {{"a", {3, 7}}, {"b", {7}}};
const std::vector<Input> kImage = {{"input", {2, 16, 9, 9}}};

Input integers(const char* name, const Shape& shape, double end) {
  return {.name = name, .shape = shape, .low = 0, .high = end, .dtype = kInt64};
}
Input bools(const char* name, const Shape& shape) {
  return {.name = name, .shape = shape, .low = 0, .high = 2, .dtype = kBool};
}
Input positive(const char* name, const Shape& shape) { return {.name = name, .shape = shape, .low = 0.5}; }
Input maybe(Input input) {
  input.optional = true;
  return input;
}
/// That never gets a gradient.
Input constant(Input input) {
  input.differentiable = false;
  return input;
}

// --- families ----------------------------------------------------------------------------------------------------------------

Rows elementwise_rows() {
  const unsigned two = kBroadcasts;
  return {
      {"add(Tensor, Tensor, Scalar)", kAB, [](const In& x) { return add(x[0], x[1], 0.5); }, two},
      {"add(Tensor, Scalar)", kA, [](const In& x) { return add(x[0], 2.5); }},
      {"add(Scalar, Tensor)", kA, [](const In& x) { return add(2.5, x[0]); }},
      {"sub(Tensor, Tensor, Scalar)", kAB, [](const In& x) { return sub(x[0], x[1], 0.5); }, two},
      {"sub(Tensor, Scalar)", kA, [](const In& x) { return sub(x[0], 2.5); }},
      {"sub(Scalar, Tensor)", kB, [](const In& x) { return sub(2.5, x[0]); }},
      {"mul(Tensor, Tensor)", kAB, [](const In& x) { return mul(x[0], x[1]); }, two},
      {"mul(Tensor, Scalar)", kA, [](const In& x) { return mul(x[0], 2.5); }},
      {"mul(Scalar, Tensor)", kA, [](const In& x) { return mul(2.5, x[0]); }},
      {"div(Tensor, Tensor)", kAB, [](const In& x) { return div(x[0], x[1]); }, two},
      {"div(Tensor, Scalar)", kA, [](const In& x) { return div(x[0], 2.5); }},
      {"div(Scalar, Tensor)", kB, [](const In& x) { return div(2.5, x[0]); }},
      {"operator+(Tensor, Tensor)", kAB, [](const In& x) { return x[0] + x[1]; }, two, "add"},
      {"operator+(Tensor, Scalar)", kA, [](const In& x) { return x[0] + 2.5; }},
      {"operator+(Scalar, Tensor)", kA, [](const In& x) { return 2.5 + x[0]; }},
      {"operator-(Tensor, Tensor)", kAB, [](const In& x) { return x[0] - x[1]; }, two, "sub"},
      {"operator-(Tensor, Scalar)", kA, [](const In& x) { return x[0] - 2.5; }},
      {"operator-(Scalar, Tensor)", kB, [](const In& x) { return 2.5 - x[0]; }},
      {"operator*(Tensor, Tensor)", kAB, [](const In& x) { return x[0] * x[1]; }, two, "mul"},
      {"operator*(Tensor, Scalar)", kA, [](const In& x) { return x[0] * 2.5; }},
      {"operator*(Scalar, Tensor)", kA, [](const In& x) { return 2.5 * x[0]; }},
      {"operator/(Tensor, Tensor)", kAB, [](const In& x) { return x[0] / x[1]; }, two, "div"},
      {"operator/(Tensor, Scalar)", kA, [](const In& x) { return x[0] / 2.5; }},
      {"operator/(Scalar, Tensor)", kB, [](const In& x) { return 2.5 / x[0]; }},
      {"operator-(Tensor)", kInput, [](const In& x) { return -x[0]; }},
      {"neg(Tensor)", kInput, [](const In& x) { return neg(x[0]); }},
      {"exp(Tensor)", kInput, [](const In& x) { return exp(x[0]); }},
      {"log(Tensor)", kInput, [](const In& x) { return log(x[0]); }},
      {"relu(Tensor)", kInput, [](const In& x) { return relu(x[0]); }},
      {"clone(Tensor)", kInput, [](const In& x) { return clone(x[0]); }},
      {"contiguous(Tensor)", kInput, [](const In& x) { return contiguous(x[0]); }},
      {"gelu(Tensor, GeluApproximation)", kInput, [](const In& x) { return gelu(x[0], GeluApproximation::kTanh); }},
      {"silu(Tensor)", kInput, [](const In& x) { return silu(x[0]); }},
      {"tanh(Tensor)", kInput, [](const In& x) { return tanh(x[0]); }},
      {"sigmoid(Tensor)", kInput, [](const In& x) { return sigmoid(x[0]); }},
      {"sqrt(Tensor)", kInput, [](const In& x) { return sqrt(x[0]); }},
      {"rsqrt(Tensor)", kInput, [](const In& x) { return rsqrt(x[0]); }},
      {"pow(Tensor, Scalar)", kInput, [](const In& x) { return pow(x[0], 2.5); }},
      {"pow(Tensor, Scalar)", kInput, [](const In& x) { return pow(x[0], 0); }},
      {"pow(Tensor, Tensor)",
       {positive("input", {3, 7}), {"exponent", {7}}},
       [](const In& x) { return pow(x[0], x[1]); },
       two},
      {"clamp(Tensor, optional<Scalar>, optional<Scalar>)", kInput, [](const In& x) { return clamp(x[0], -1, 0.5); }},
      {"to(Tensor, DType)", kInput, [](const In& x) { return to(x[0], kFloat64); }},
  };
}

/// The members that change self.
Rows in_place_rows() {
  const std::vector<Input> self = {{"self", {3, 7}}}, two = {{"self", {3, 7}}, {"other", {7}}};
  const std::vector<Input> overwritten = {constant({"self", {3, 7}})};
  const std::vector<Input> scalar = {{"self", {3, 7}}, {"other", {}}};
  return {
      {"add_(Tensor, Scalar)", two, [](const In& x) { return x[0].add_(x[1], 0.5); }},
      {"add_(Tensor, Scalar)", scalar, [](const In& x) { return x[0].add_(x[1]); }},
      {"sub_(Tensor, Scalar)", two, [](const In& x) { return x[0].sub_(x[1], 0.5); }},
      {"sub_(Tensor, Scalar)", scalar, [](const In& x) { return x[0].sub_(x[1]); }},
      {"mul_(Tensor)", two, [](const In& x) { return x[0].mul_(x[1]); }},
      {"mul_(Tensor)", scalar, [](const In& x) { return x[0].mul_(x[1]); }},
      {"div_(Tensor)", two, [](const In& x) { return x[0].div_(x[1]); }},
      {"div_(Tensor)", scalar, [](const In& x) { return x[0].div_(x[1]); }},
      {"add_(Scalar)", self, [](const In& x) { return x[0].add_(2.5); }},
      {"sub_(Scalar)", self, [](const In& x) { return x[0].sub_(2.5); }},
      {"mul_(Scalar)", self, [](const In& x) { return x[0].mul_(2.5); }},
      {"div_(Scalar)", self, [](const In& x) { return x[0].div_(2.5); }},
      {"fill_(Scalar)", overwritten, [](const In& x) { return x[0].fill_(2.5); }, kNoGradient},
      {"zero_()", overwritten, [](const In& x) { return x[0].zero_(); }, kNoGradient},
      {"copy_(Tensor)", {constant({"self", {3, 7}}), {"src", {7}}}, [](const In& x) { return x[0].copy_(x[1]); }},
      {"copy_(Tensor)", {constant({"self", {3, 7}}), {"src", {}}}, [](const In& x) { return x[0].copy_(x[1]); }},
  };
}

Rows compare_rows() {
  const unsigned two = kBroadcasts | kNoGradient, one = kNoGradient;
  return {
      {"eq(Tensor, Tensor)", kAB, [](const In& x) { return eq(x[0], x[1]); }, two},
      {"eq(Tensor, Scalar)", kA, [](const In& x) { return eq(x[0], 0.5); }, one},
      {"ne(Tensor, Tensor)", kAB, [](const In& x) { return ne(x[0], x[1]); }, two},
      {"ne(Tensor, Scalar)", kA, [](const In& x) { return ne(x[0], 0.5); }, one},
      {"lt(Tensor, Tensor)", kAB, [](const In& x) { return lt(x[0], x[1]); }, two},
      {"lt(Tensor, Scalar)", kA, [](const In& x) { return lt(x[0], 0.5); }, one},
      {"le(Tensor, Tensor)", kAB, [](const In& x) { return le(x[0], x[1]); }, two},
      {"le(Tensor, Scalar)", kA, [](const In& x) { return le(x[0], 0.5); }, one},
      {"gt(Tensor, Tensor)", kAB, [](const In& x) { return gt(x[0], x[1]); }, two},
      {"gt(Tensor, Scalar)", kA, [](const In& x) { return gt(x[0], 0.5); }, one},
      {"ge(Tensor, Tensor)", kAB, [](const In& x) { return ge(x[0], x[1]); }, two},
      {"ge(Tensor, Scalar)", kA, [](const In& x) { return ge(x[0], 0.5); }, one},
      {"where(Tensor, Tensor, Tensor)",
       {bools("condition", {3, 7}), {"a", {7}}, {"b", {3, 1}}},
       [](const In& x) { return where(x[0], x[1], x[2]); },
       kBroadcasts},
      {"where(Tensor, Tensor, Scalar)",
       {bools("condition", {3, 7}), {"a", {7}}},
       [](const In& x) { return where(x[0], x[1], 2.5); },
       kBroadcasts},
      {"where(Tensor, Scalar, Tensor)",
       {bools("condition", {3, 7}), {"b", {7}}},
       [](const In& x) { return where(x[0], 2.5, x[1]); },
       kBroadcasts},
  };
}

Rows index_rows() {
  return {
      {"embedding(Tensor, Tensor)",
       {integers("indices", {2, 3}, 5), {"weight", {5, 4}}},
       [](const In& x) { return embedding(x[0], x[1]); }},
      {"embedding(Tensor, Tensor)",
       {integers("indices", {}, 5), {"weight", {5, 4}}},
       [](const In& x) { return embedding(x[0], x[1]); }},
      {"gather(Tensor, int64_t, Tensor)",
       {{"input", {3, 7}}, integers("index", {2, 5}, 7)},
       [](const In& x) { return gather(x[0], 1, x[1]); }},
      {"gather(Tensor, int64_t, Tensor)",
       {{"input", {}}, integers("index", {}, 1)},
       [](const In& x) { return gather(x[0], 0, x[1]); }},
      {"index_select(Tensor, int64_t, Tensor)",
       {{"input", {3, 7}}, integers("index", {4}, 7)},
       [](const In& x) { return index_select(x[0], 1, x[1]); }},
      {"one_hot(Tensor, int64_t)",
       {integers("labels", {3}, 5)},
       [](const In& x) { return one_hot(x[0], 5); },
       kNoGradient},
      {"topk(Tensor, int64_t, int64_t, bool)", kInput, [](const In& x) { return topk(x[0], 2, 0); }},
      {"masked_fill(Tensor, Tensor, Scalar)",
       {{"input", {3, 7}}, bools("mask", {7})},
       [](const In& x) { return masked_fill(x[0], x[1], 2.5); },
       kBroadcasts},
      {"tril(Tensor, int64_t)", kInput, [](const In& x) { return tril(x[0], 1); }},
  };
}

Rows loss_rows() {
  return {
      {"cross_entropy(Tensor, Tensor)",
       {{"logits", {3, 7}}, integers("labels", {3}, 7)},
       [](const In& x) { return cross_entropy(x[0], x[1]); }},
      {"nll_loss(Tensor, Tensor)",
       {{"log_probs", {3, 7}}, integers("labels", {3}, 7)},
       [](const In& x) { return nll_loss(x[0], x[1]); }},
      {"mse_loss(Tensor, Tensor)",
       {{"input", {3, 7}}, {"target", {3, 7}}},
       [](const In& x) { return mse_loss(x[0], x[1]); }},
  };
}

Rows product_rows() {
  const auto product = [](const In& x) { return matmul(x[0], x[1]); };
  const auto attend = [](bool is_causal) {
    return [=](const In& x) {
      return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3], .is_causal = is_causal});
    };
  };
  const auto attend_qkv = [](const In& x) { return qkv_attention(x[0], 2, {.attn_mask = x[1], .is_causal = true}); };
  const Input query = {"query", {2, 3, 5}}, key = {"key", {2, 7, 5}}, value = {"value", {2, 7, 4}};
  const char* const attention = "scaled_dot_product_attention(Tensor, Tensor, Tensor, AttentionOptions)";
  const char* const heads = "qkv_attention(Tensor, int64_t, AttentionOptions)";
  const std::vector<Input> affine = {{"x", {2, 20, 33}}, {"weight", {31, 33}}, maybe({"bias", {31}})};
  const auto conv = [](Conv2dOptions options) {
    return [=](const In& x) { return conv2d(x[0], x[1], x[2], options); };
  };
  const Input image = kImage[0], filters = {"weight", {17, 16, 3, 3}}, bias = maybe({"bias", {17}});
  const char* const convolution = "conv2d(Tensor, Tensor, Tensor, Conv2dOptions)";
  return {
      {"matmul(Tensor, Tensor)", {{"input", {31, 40}}, {"other", {40, 33}}}, product},
      {"matmul(Tensor, Tensor)", {{"input", {5}}, {"other", {5}}}, product},
      {"matmul(Tensor, Tensor)", {{"input", {2, 1, 3, 5}}, {"other", {4, 5, 2}}}, product},
      {"matmul(Tensor, Tensor)", {{"input", {4, 3, 5}}, {"other", {5, 2}}}, product},
      {"matmul(Tensor, Tensor)", {{"input", {5}}, {"other", {4, 5, 2}}}, product},
      {"bmm(Tensor, Tensor)", {{"input", {2, 3, 5}}, {"mat2", {2, 5, 4}}}, [](const In& x) { return bmm(x[0], x[1]); }},
      {"addmm(Tensor, Tensor, Tensor, Scalar, Scalar)",
       {{"input", {4}}, {"mat1", {3, 5}}, {"mat2", {5, 4}}},
       [](const In& x) { return addmm(x[0], x[1], x[2], 0.5, 2); }},
      {"addmm(Tensor, Tensor, Tensor, Scalar, Scalar)",
       {{"input", {}}, {"mat1", {3, 5}}, {"mat2", {5, 4}}},
       [](const In& x) { return addmm(x[0], x[1], x[2], 0, 2); }},
      {"linear(Tensor, Tensor, Tensor)", affine, [](const In& x) { return linear(x[0], x[1], x[2]); }},
      {"linear_relu(Tensor, Tensor, Tensor)", affine, [](const In& x) { return linear_relu(x[0], x[1], x[2]); }},
      {convolution, {image, filters, bias}, conv({.padding = 1})},
      {convolution, {image, filters, bias}, conv({.stride = 2, .dilation = 2})},
      {convolution, {image, {"weight", {16, 1, 3, 3}}, maybe({"bias", {16}})}, conv({.padding = 1, .groups = 16})},
      {"conv2d_relu(Tensor, Tensor, Tensor, Conv2dOptions)",
       {image, filters, bias},
       [](const In& x) { return conv2d_relu(x[0], x[1], x[2], {.padding = 1}); }},
      {attention, {query, key, value, maybe(constant({"attn_mask", {3, 7}}))}, attend(true)},
      {attention, {query, key, value, bools("attn_mask", {2, 1, 7})}, attend(false)},
      {attention, {query, key, value, {"attn_mask", {}}}, attend(false)},
      {heads, {{"qkv", {2, 3, 18}}, maybe(constant({"attn_mask", {3, 3}}))}, attend_qkv},
      {heads, {{"qkv", {2, 3, 18}}, bools("attn_mask", {3, 3})}, attend_qkv},
      {heads, {{"qkv", {2, 3, 18}}, {"attn_mask", {}}}, attend_qkv},
  };
}

/// The batch of one rank.
struct Alone : BatchNormExchange {
  Tensor gather(const Tensor& moments) override { return moments.unsqueeze(0); }
  void sum(const Tensor&) override {}
};

Rows norm_rows() {
  const auto inputs = [](const Shape& shape, bool with_residual = false, bool fixed_statistics = false) {
    std::vector<Input> list = {{"input", shape}};
    if (with_residual) list.push_back({"residual", shape});
    for (Input running : {constant({"running_mean", {3}}), constant(positive("running_var", {3}))}) {
      running.dtype = kFloat32;
      list.push_back(fixed_statistics ? running : maybe(running));
    }
    list.push_back(maybe({"weight", {3}}));
    list.push_back(maybe({"bias", {3}}));
    return list;
  };
  const auto norm = [](bool training) {
    return [=](const In& x) { return batch_norm(x[0], x[1], x[2], x[3], x[4], training, 0.3); };
  };
  const auto norm_relu = [](bool training) {
    return [=](const In& x) { return batch_norm_relu(x[0], x[1], x[2], x[3], x[4], training, 0.3); };
  };
  const auto norm_add_relu = [](bool training) {
    return [=](const In& x) { return batch_norm_add_relu(x[0], x[1], x[2], x[3], x[4], x[5], training, 0.3); };
  };
  const auto sync_norm = [](const In& x) {
    return sync_batch_norm(x[0], x[1], x[2], x[3], x[4], std::make_shared<Alone>(), 0.3);
  };
  const char* const plain = "batch_norm(Tensor, Tensor, Tensor, Tensor, Tensor, bool, double, double)";
  const char* const with_relu = "batch_norm_relu(Tensor, Tensor, Tensor, Tensor, Tensor, bool, double, double)";
  const char* const with_add =
      "batch_norm_add_relu(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, bool, double, double)";
  const char* const sync =
      "sync_batch_norm(Tensor, Tensor, Tensor, Tensor, Tensor, shared_ptr<BatchNormExchange>, double, double)";
  const Shape image = {2, 3, 4, 5}, rows = {7, 3};
  return {
      {plain, inputs(image), norm(true)},
      {plain, inputs(rows), norm(true)},
      {plain, inputs(image, false, true), norm(false)},
      {with_relu, inputs(image), norm_relu(true)},
      {with_relu, inputs(image, false, true), norm_relu(false)},
      {with_add, inputs(image, true), norm_add_relu(true)},
      {with_add, inputs(image, true, true), norm_add_relu(false)},
      {sync, inputs(image), sync_norm, kNoSecondGradient},
      {"layer_norm(Tensor, Shape, Tensor, Tensor, double)",
       {{"input", {2, 3, 5}}, maybe({"weight", {3, 5}}), maybe({"bias", {3, 5}})},
       [](const In& x) {
         return layer_norm(x[0], {3, 5}, x[1], x[2]);
       }},
      {"softmax(Tensor, int64_t)", kInput, [](const In& x) { return softmax(x[0], 0); }},
      {"log_softmax(Tensor, int64_t)", kInput, [](const In& x) { return log_softmax(x[0], 0); }},
  };
}

Rows reduce_rows() {
  return {
      {"sum(Tensor)", kInput, [](const In& x) { return sum(x[0]); }},
      {"sum(Tensor)", {{"input", {70001}}}, [](const In& x) { return sum(x[0]); }},
      {"sum(Tensor, Shape, bool)", kInput, [](const In& x) { return sum(x[0], {0}, true); }},
      {"mean(Tensor)", kInput, [](const In& x) { return mean(x[0]); }},
      {"mean(Tensor, Shape, bool)", kInput, [](const In& x) { return mean(x[0], {0}); }},
      {"var(Tensor, Shape, int64_t, bool)", kInput, [](const In& x) { return var(x[0], {1}); }},
      {"max(Tensor)", kInput, [](const In& x) { return max(x[0]); }},
      {"argmax(Tensor, int64_t, bool)", kInput, [](const In& x) { return argmax(x[0], 1); }, kNoGradient},
      {"max_pool2d(Tensor, Size2d, MaxPool2dOptions)", kImage,
       [](const In& x) { return max_pool2d(x[0], 3, {.stride = 2, .padding = 1}); }},
      {"avg_pool2d(Tensor, Size2d, AvgPool2dOptions)", kImage,
       [](const In& x) { return avg_pool2d(x[0], 3, {.padding = 1}); }},
      {"adaptive_avg_pool2d(Tensor, Size2d)", kImage, [](const In& x) { return adaptive_avg_pool2d(x[0], 3); }},
  };
}

/// Random numbers of a tensor's own device.
Rows draw_rows() {
  const std::vector<Input> probabilities = {{"p", {3, 7}, 0, 1}};
  const std::vector<Input> weights = {positive("probabilities", {3, 7})};
  return {
      {"bernoulli(Tensor, Generator*)", probabilities, [](const In& x) { return bernoulli(x[0]); }, kNoGradient},
      {"multinomial(Tensor, int64_t, bool, Generator*)", weights, [](const In& x) { return multinomial(x[0], 2); },
       kNoGradient},
      {"dropout(Tensor, double, bool, Generator*)", {{"x", {3, 7}}}, [](const In& x) { return dropout(x[0], 0.25); }},
  };
}

Rows view_rows() {
  const std::vector<Input> tensors = {{"tensors[0]", {3, 7}}, {"tensors[1]", {3, 7}}, {"tensors[2]", {3, 7}}};
  const std::vector<Input> scalars = {{"tensors[0]", {}}, {"tensors[1]", {}}};
  return {
      {"view(Tensor, Shape)", kInput,
       [](const In& x) {
         return view(x[0], {3, 7, 1});
       }},
      {"reshape(Tensor, Shape)", kInput,
       [](const In& x) {
         return reshape(x[0], {7, 3});
       }},
      {"flatten(Tensor, int64_t, int64_t)", kInput, [](const In& x) { return flatten(x[0]); }},
      {"transpose(Tensor, int64_t, int64_t)", kInput, [](const In& x) { return transpose(x[0], 0, 1); }},
      {"t(Tensor)", kInput, [](const In& x) { return t(x[0]); }},
      {"permute(Tensor, Shape)", kInput,
       [](const In& x) {
         return permute(x[0], {1, 0});
       }},
      {"slice(Tensor, int64_t, int64_t, int64_t, int64_t)", kInput,
       [](const In& x) { return slice(x[0], 1, 1, 6, 2); }},
      {"select(Tensor, int64_t, int64_t)", kInput, [](const In& x) { return select(x[0], 1, 4); }},
      {"expand(Tensor, Shape)", kInput,
       [](const In& x) {
         return expand(x[0], {2, 3, 7});
       }},
      {"squeeze(Tensor)", {{"input", {3, 1}}}, [](const In& x) { return squeeze(x[0]); }},
      {"squeeze(Tensor, int64_t)", {{"input", {3, 1}}}, [](const In& x) { return squeeze(x[0], 1); }},
      {"unsqueeze(Tensor, int64_t)", kInput, [](const In& x) { return unsqueeze(x[0], 1); }},
      {"split(Tensor, int64_t, int64_t)", kInput, [](const In& x) { return split(x[0], 2, 1); }},
      {"split(Tensor, Shape, int64_t)", kInput,
       [](const In& x) {
         return split(x[0], Shape{1, 6}, 1);
       }},
      {"split(Tensor, initializer_list<int64_t>, int64_t)", kInput,
       [](const In& x) {
         return split(x[0], {3, 4}, 1);
       }},
      {"chunk(Tensor, int64_t, int64_t)", kInput, [](const In& x) { return chunk(x[0], 2, 1); }},
      {"cat(vector<Tensor>, int64_t)", tensors, [](const In& x) { return cat(x, 1); }},
      {"stack(vector<Tensor>, int64_t)", tensors, [](const In& x) { return stack(x, 1); }},
      {"stack(vector<Tensor>, int64_t)", scalars, [](const In& x) { return stack(x); }},
  };
}

// --- what crosses ------------------------------------------------------------------------------------------------------------

const Device kOne(test_device().type, 1), kTwo(test_device().type, 2), kThree(test_device().type, 3);

std::vector<Placed> placed(const std::vector<Tensor>& tensors, const std::vector<Device>& devices) {
  std::vector<Placed> result;
  for (size_t i = 0; i < tensors.size(); ++i) result.push_back({tensors[i], devices.at(i)});
  return result;
}

}  // namespace

std::vector<OpRow> op_rows() {
  Rows all;
  for (const auto family : {elementwise_rows, in_place_rows, compare_rows, index_rows, loss_rows, product_rows,
                            norm_rows, reduce_rows, draw_rows, view_rows}) {
    Rows rows = family();
    std::move(rows.begin(), rows.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<CrossingRow> crossing_rows() {
  const TransferOptions small = {.chunk_bytes = 16};
  const std::vector<std::pair<Shape, int>> one = {{{5, 3}, 1}}, three = {{{5, 3}, 1}, {{5, 3}, 2}, {{5, 3}, 3}};
  const TensorOptions on_two = {kFloat32, kTwo};
  return {
      {"to(Tensor, Device)", one, [](const In& x) { return placed({to(x[0], kTwo)}, {kTwo}); }},
      {"to_async(Tensor, Device, TransferOptions)", one,
       [=](const In& x) { return placed({to_async(x[0], kTwo, small).get()}, {kTwo}); }},
      {"gather_to(Device, vector<Tensor>, TransferOptions)", three,
       [=](const In& x) {
         return placed(gather_to(kTwo, x, small), {kTwo, kTwo, kTwo});
       }},
      {"addmm_split(Tensor, vector<Tensor>, vector<Tensor>, SplitDim, Device, Scalar, Scalar)",
       {{{4}, 3}, {{5, 2}, 1}, {{5, 3}, 2}, {{2, 4}, 1}, {{3, 4}, 2}},
       [](const In& x) {
         return placed({addmm_split(x[0], {x[1], x[2]}, {x[3], x[4]}, SplitDim::kInner, kThree)}, {kThree});
       }},
      {"comm::sum_to(Device, vector<Tensor>, TransferOptions)", three,
       [=](const In& x) { return placed({comm::sum_to(kTwo, x, small)}, {kTwo}); }},
      {"comm::all_reduce(vector<Tensor>, TransferOptions)", three,
       [=](const In& x) {
         return placed(comm::all_reduce(x, small), {kOne, kTwo, kThree});
       }},
      {"comm::broadcast(Tensor, vector<Device>, TransferOptions)", one,
       [=](const In& x) {
         return placed(comm::broadcast(x[0], {kThree, kOne, kTwo}, small), {kThree, kOne, kTwo});
       }},
      {"comm::scatter(Tensor, vector<Device>, int64_t, TransferOptions)", one,
       [=](const In& x) {
         return placed(comm::scatter(x[0], {kThree, kOne, kTwo}, 0, small), {kThree, kOne, kTwo});
       }},
      {"comm::gather(vector<Tensor>, int64_t, Device, TransferOptions)", three,
       [=](const In& x) { return placed({comm::gather(x, 1, kTwo, small)}, {kTwo}); }},
      {"comm::all_gather(vector<Tensor>, int64_t, TransferOptions)", three,
       [=](const In& x) {
         return placed(comm::all_gather(x, 1, small), {kOne, kTwo, kThree});
       }},
      {"rand(Shape, TensorOptions, Generator*)", {}, [=](const In&) { return placed({rand({5}, on_two)}, {kTwo}); }},
      {"randn(Shape, TensorOptions, Generator*)", {}, [=](const In&) { return placed({randn({5}, on_two)}, {kTwo}); }},
      {"randint(int64_t, int64_t, Shape, TensorOptions, Generator*)",
       {},
       [](const In&) {
         return placed({randint(0, 9, {5}, {kInt64, kTwo})}, {kTwo});
       }},
      {"randperm(int64_t, Device, Generator*)", {}, [](const In&) { return placed({randperm(5, kTwo)}, {kTwo}); }},
  };
}

}  // namespace tandem::testing
