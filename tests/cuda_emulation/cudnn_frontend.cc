// cuDNN's frontend for a graph of one attention. A violation of a documented rule ends the process.
//
// Numbers are rounded where tensor cores need half types, so that tests see the error of cuDNN: weights before they are
// multiplied by values, and gradients of scores before they are multiplied by keys and queries.
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/half.h>
#include <tandem/tests/cuda_emulation/cudnn_handle.h>
#include <tandem/tests/cuda_emulation/library.h>

namespace cuda_emulation { namespace {

using cudnn_frontend::DataType_t;
using cudnn_frontend::graph::Tensor_attributes;

[[noreturn]] void fault(const std::string& text) { end_process("cuDNN's frontend: " + text); }

constexpr int64_t kForwardWorkspace = 256;
constexpr size_t kAlignment = 16;

float rounded(DataType_t type, double value) {
  const auto number = static_cast<float>(value);
  return type == DataType_t::FLOAT  ? number
         : type == DataType_t::HALF ? float{tandem::Half(number)}
                                    : float{tandem::BFloat16(number)};
}

/// A tensor [batch, heads, rows, columns] in memory.
struct Matrix {
  DataType_t type;
  std::vector<int64_t> sizes, strides;
  void* data = nullptr;

  Matrix() = default;
  Matrix(const Tensor_attributes& attributes, void* pointer)
      : type(attributes.get_data_type()),
        sizes(attributes.get_dim()),
        strides(attributes.get_stride()),
        data(pointer) {}

  size_t element_bytes() const { return type == DataType_t::FLOAT ? 4 : 2; }
  size_t num_bytes() const {  // from the first element to the last one
    int64_t last = 0;
    for (size_t d = 0; d < 4; ++d) last += (sizes[d] - 1) * strides[d];
    return static_cast<size_t>(last + 1) * element_bytes();
  }
  double numel() const {
    double count = 1;
    for (const int64_t size : sizes) count *= static_cast<double>(size);
    return count;
  }
  int64_t at(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    return batch * strides[0] + head * strides[1] + row * strides[2] + column * strides[3];
  }
  double get(int64_t index) const {
    return type == DataType_t::FLOAT  ? static_cast<const float*>(data)[index]
           : type == DataType_t::HALF ? float{static_cast<const tandem::Half*>(data)[index]}
                                      : float{static_cast<const tandem::BFloat16*>(data)[index]};
  }
  void set(int64_t index, double value) const {
    const auto number = static_cast<float>(value);
    if (type == DataType_t::FLOAT) {
      static_cast<float*>(data)[index] = number;
    } else if (type == DataType_t::HALF) {
      static_cast<tandem::Half*>(data)[index] = tandem::Half(number);
    } else {
      static_cast<tandem::BFloat16*>(data)[index] = tandem::BFloat16(number);
    }
  }
};

/// Row-major [rows, columns] of one batch and head, in float64.
struct Dense {
  int64_t columns;
  std::vector<double> values;

  Dense(int64_t rows, int64_t num_columns)
      : columns(num_columns), values(static_cast<size_t>(rows * num_columns), 0.0) {}
  Dense(const Matrix& from, int64_t batch, int64_t head) : Dense(from.sizes[2], from.sizes[3]) {
    for (int64_t r = 0; r < from.sizes[2]; ++r) {
      for (int64_t c = 0; c < columns; ++c) (*this)(r, c) = from.get(from.at(batch, head, r, c));
    }
  }
  double& operator()(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  void store(const Matrix& to, int64_t batch, int64_t head) {
    for (int64_t r = 0; r < to.sizes[2]; ++r) {
      for (int64_t c = 0; c < columns; ++c) to.set(to.at(batch, head, r, c), (*this)(r, c));
    }
  }
};

double dot(Dense& a, int64_t row_a, Dense& b, int64_t row_b) {
  double sum = 0;
  for (int64_t d = 0; d < a.columns; ++d) sum += a(row_a, d) * b(row_b, d);
  return sum;
}

struct Attention {
  Matrix query, key, value, out, statistics, grad, grad_query, grad_key, grad_value;
  Matrix bias, kept;  // without data: none
  double scale;
  cudnn_frontend::graph::AttentionTerms terms;

  /// Heads of query per head of key and value.
  int64_t group() const { return query.sizes[1] / key.sizes[1]; }
  /// Element of a matrix that may have one batch or one head for all.
  static double shared_element(const Matrix& m, int64_t batch, int64_t head, int64_t t, int64_t s) {
    return m.get(m.at(m.sizes[0] == 1 ? 0 : batch, m.sizes[1] == 1 ? 0 : head, t, s));
  }
  /// The score of query t and key s from their product.
  double score(double product, int64_t batch, int64_t head, int64_t t, int64_t s) const {
    const bool is_last = terms.alignment == cudnn_frontend::DiagonalAlignment_t::BOTTOM_RIGHT;
    const int64_t position = t + (is_last ? key.sizes[2] - query.sizes[2] : 0);
    if ((terms.right_bound >= 0 && s > position + terms.right_bound) ||
        (terms.left_bound > 0 && s <= position - terms.left_bound)) {
      return -std::numeric_limits<double>::infinity();
    }
    return scale * product + (bias.data == nullptr ? 0 : shared_element(bias, batch, head, t, s));
  }
  double factor(int64_t batch, int64_t head, int64_t t, int64_t s) const {
    if (kept.data == nullptr) return 1;
    const double is_kept = kept.get(kept.at(batch, head, t, s));
    if (is_kept != 0 && is_kept != 1) fault("a factor of dropout that is not 0 or 1");
    return is_kept * terms.kept_scale;
  }

  void forward(int64_t batch, int64_t head) const {
    Dense q(query, batch, head), k(key, batch, head / group()), v(value, batch, head / group());
    Dense o(query.sizes[2], value.sizes[3]);
    std::vector<double> scores(static_cast<size_t>(key.sizes[2]));
    for (int64_t t = 0; t < query.sizes[2]; ++t) {
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t s = 0; s < key.sizes[2]; ++s) {
        max = std::max(max, scores[static_cast<size_t>(s)] = score(dot(q, t, k, s), batch, head, t, s));
      }
      for (int64_t s = 0; s < key.sizes[2]; ++s) {
        const double weight = std::exp(scores[static_cast<size_t>(s)] - max);
        sum += weight;
        const double dropped = rounded(value.type, weight * factor(batch, head, t, s));
        for (int64_t d = 0; d < o.columns; ++d) o(t, d) += dropped * v(s, d);
      }
      for (int64_t d = 0; d < o.columns; ++d) o(t, d) /= sum;
      statistics.set(statistics.at(batch, head, t, 0), max + std::log(sum));
    }
    o.store(out, batch, head);
  }

  /// The gradients of one head of key and value, and of the heads of query that read it.
  void backward(int64_t batch, int64_t shared) const {
    Dense k(key, batch, shared), v(value, batch, shared);
    Dense dk(key.sizes[2], k.columns), dv(key.sizes[2], v.columns);
    for (int64_t head = shared * group(); head < (shared + 1) * group(); ++head) {
      Dense q(query, batch, head), o(out, batch, head), g(grad, batch, head), dq(query.sizes[2], q.columns);
      for (int64_t t = 0; t < query.sizes[2]; ++t) {
        const double log_sum = statistics.get(statistics.at(batch, head, t, 0));
        const double product = dot(o, t, g, t);  // cuDNN 9.19 ignores the inverse scale
        for (int64_t s = 0; s < key.sizes[2]; ++s) {
          const double weight = std::exp(score(dot(q, t, k, s), batch, head, t, s) - log_sum);
          const double kept_factor = factor(batch, head, t, s);  // the gradient is computed without its scale at first
          const double weight_grad = dot(g, t, v, s) * kept_factor / terms.kept_scale;
          const double error = rounded(query.type, weight * (weight_grad - product) * terms.kept_scale);
          const double dropped = rounded(value.type, weight * kept_factor);
          for (int64_t d = 0; d < v.columns; ++d) dv(s, d) += dropped * g(t, d);
          for (int64_t d = 0; d < q.columns; ++d) {
            dq(t, d) += scale * error * k(s, d);
            dk(s, d) += scale * error * q(t, d);
          }
        }
      }
      dq.store(grad_query, batch, head);
    }
    dk.store(grad_key, batch, shared);
    dv.store(grad_value, batch, shared);
  }
};

void check_tensor(const char* name, const Tensor_attributes& t, const std::vector<int64_t>& sizes, DataType_t type) {
  const std::string what = std::string(name) + ": ";
  if (t.get_dim() != sizes) fault(what + "its sizes do not match the others'");
  if (t.get_data_type() != type) fault(what + "wrong type");
  if (t.get_stride().size() != 4 || t.get_stride()[3] != 1) fault(what + "needs four strides, the last one 1");
  for (size_t d = 0; d < 4; ++d) {
    if (sizes[d] < 1) fault(what + "a size below 1");
    if (sizes[d] > 1 && t.get_stride()[d] < 1) fault(what + "a stride below 1");
  }
}

}}  // namespace cuda_emulation

namespace cudnn_frontend { namespace graph {

using namespace cuda_emulation;

std::array<Graph::Tensor, 2> Graph::sdpa(Tensor query, Tensor key, Tensor value, const SDPA_attributes& attributes) {
  if (query_ != nullptr) fault("a graph of two operations is not emulated");
  query_ = std::move(query), key_ = std::move(key), value_ = std::move(value);
  out_ = std::make_shared<Tensor_attributes>(), statistics_ = std::make_shared<Tensor_attributes>();
  scale_ = attributes.scale, terms_ = attributes.terms, has_statistics_ = attributes.has_statistics;
  return {out_, statistics_};
}

std::array<Graph::Tensor, 3> Graph::sdpa_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor grad,
                                                  Tensor statistics, const SDPA_backward_attributes& attributes) {
  if (query_ != nullptr) fault("a graph of two operations is not emulated");
  query_ = std::move(query), key_ = std::move(key), value_ = std::move(value), out_ = std::move(out);
  grad_ = std::move(grad), statistics_ = std::move(statistics);
  grad_query_ = std::make_shared<Tensor_attributes>(), grad_key_ = std::make_shared<Tensor_attributes>();
  grad_value_ = std::make_shared<Tensor_attributes>();
  is_backward_ = has_statistics_ = true;
  scale_ = attributes.scale, terms_ = attributes.terms, is_deterministic_ = attributes.is_deterministic;
  return {grad_query_, grad_key_, grad_value_};
}

std::vector<Graph::Tensor> Graph::all() const {
  std::vector<Tensor> tensors = {query_, key_, value_, out_, statistics_};
  if (is_backward_) tensors.insert(tensors.end(), {grad_, grad_query_, grad_key_, grad_value_});
  for (const Tensor& tensor : {terms_.bias, terms_.kept}) {
    if (tensor != nullptr) tensors.push_back(tensor);
  }
  return tensors;
}

error_t Graph::advance(const char* call, State from, State next) {
  if (state_ != from) fault(std::string(call) + " is called in the wrong order");
  if (const int status = record_library_call(std::string("cudnn_frontend ") + call); status != 0) {
    return {"CUDNN_STATUS " + std::to_string(status)};
  }
  state_ = next;
  return {};
}

error_t Graph::validate() {
  if (query_ == nullptr) fault("a graph without operations");
  if (intermediate_ != DataType_t::FLOAT || compute_ != DataType_t::FLOAT) fault("attention is computed in float");
  const DataType_t type = query_->get_data_type();
  if (type != DataType_t::HALF && type != DataType_t::BFLOAT16) fault("attention of a type that is not half");
  if (query_->get_dim().size() != 4 || key_->get_dim().size() != 4 || value_->get_dim().size() != 4) {
    fault("a tensor needs four sizes");
  }
  const int64_t batch = query_->get_dim()[0], heads = query_->get_dim()[1], queries = query_->get_dim()[2];
  const int64_t head_dim = query_->get_dim()[3], keys = key_->get_dim()[2], value_dim = value_->get_dim()[3];
  const int64_t shared = key_->get_dim()[1];  // heads of key and value
  if (shared < 1 || heads % shared != 0) fault("the heads of key do not divide those of query");
  const std::vector<int64_t> like_query = {batch, heads, queries, head_dim}, like_key = {batch, shared, keys, head_dim};
  const std::vector<int64_t> like_value = {batch, shared, keys, value_dim},
                             like_out = {batch, heads, queries, value_dim};
  check_tensor("query", *query_, like_query, type);
  check_tensor("key", *key_, like_key, type);
  check_tensor("value", *value_, like_value, type);
  check_tensor("out", *out_, like_out, type);
  if (!has_statistics_) fault("attention without statistics is not emulated");
  check_tensor("statistics", *statistics_, {batch, heads, queries, 1}, DataType_t::FLOAT);
  if (is_backward_) {
    check_tensor("gradient of out", *grad_, like_out, type);
    check_tensor("gradient of query", *grad_query_, like_query, type);
    check_tensor("gradient of key", *grad_key_, like_key, type);
    check_tensor("gradient of value", *grad_value_, like_value, type);
  }
  if (terms_.bias != nullptr) {
    const std::vector<int64_t> sizes = terms_.bias->get_dim();
    if (sizes.size() != 4 || (sizes[0] != 1 && sizes[0] != batch) || (sizes[1] != 1 && sizes[1] != heads)) {
      fault("bias: its batches and heads must be 1 or those of query");
    }
    check_tensor("bias", *terms_.bias, {sizes[0], sizes[1], queries, keys}, DataType_t::FLOAT);
  }
  if (terms_.kept != nullptr) {
    check_tensor("dropout mask", *terms_.kept, {batch, heads, queries, keys}, type);
    if (is_backward_ && terms_.inverse_scale != 1) fault("an inverse scale of dropout, which cuDNN 9.19 ignores");
  }
  std::set<int64_t> ids;
  for (const Tensor& tensor : all()) {
    if (!ids.insert(tensor->get_uid()).second) fault("two tensors have the same id");
  }
  const std::vector<Tensor> results =
      is_backward_ ? std::vector<Tensor>{grad_query_, grad_key_, grad_value_} : std::vector<Tensor>{out_, statistics_};
  for (const Tensor& result : results) {
    if (!result->get_output()) fault("a result that is not an output");
  }
  return advance("validate", State::kNew, State::kValid);
}

error_t Graph::build_operation_graph(cudnnHandle_t handle) {
  checked_handle(handle, "build_operation_graph");
  handle_ = handle;
  return advance("build_operation_graph", State::kValid, State::kBuilt);
}

error_t Graph::create_execution_plans(const std::vector<HeurMode_t>& modes) {
  if (modes.empty()) fault("no heuristic mode");
  return advance("create_execution_plans", State::kBuilt, State::kProposed);
}

error_t Graph::check_support(cudnnHandle_t handle) {
  if (handle != handle_) fault("another handle");
  const auto is_supported = [](int64_t size) { return size % 8 == 0 && size <= 256; };
  const bool is_last = terms_.alignment == DiagonalAlignment_t::BOTTOM_RIGHT, is_left_limited = terms_.left_bound > 0;
  if ((is_last || is_left_limited) && query_->get_dim()[2] > key_->get_dim()[2]) return {"more queries than keys"};
  if ((is_last || is_left_limited) && (terms_.bias != nullptr || terms_.kept != nullptr)) {
    return {"neither a bias nor dropout with such a band"};
  }
  if (!has_cudnn_engines() || !is_supported(query_->get_dim()[3]) || !is_supported(value_->get_dim()[3]) ||
      (is_backward_ && query_->get_dim()[2] == 1 && key_->get_dim()[2] == 1)) {
    return {"no plan supports this attention"};
  }
  return advance("check_support", State::kProposed, State::kSupported);
}

error_t Graph::build_plans(cudnnHandle_t handle, BuildPlanPolicy_t) {
  if (handle != handle_) fault("another handle");
  return advance("build_plans", State::kSupported, State::kPlanned);
}

error_t Graph::get_workspace_size(int64_t& num_bytes) const {
  if (state_ != State::kPlanned) fault("the workspace of a graph without a plan");
  num_bytes = kForwardWorkspace;
  if (is_backward_) {  // gradients of queries in float32, of each part of the keys if deterministic
    const std::vector<int64_t> sizes = query_->get_dim();
    num_bytes += sizes[0] * sizes[1] * sizes[2] * sizes[3] * 4 * (is_deterministic_ ? 8 : 1);
  }
  return {};
}

error_t Graph::execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& data, void* workspace) const {
  if (state_ != State::kPlanned) fault("execution of a graph without a plan");
  if (handle != handle_) fault("another handle");
  const cudnnContext& context = checked_handle(handle, "execute");
  if (context.stream == nullptr) fault("the handle has no stream");
  if (const int status = record_library_call(is_backward_ ? "cudnn_frontend execute, attention backward"
                                                          : "cudnn_frontend execute, attention");
      status != 0) {
    return {"CUDNN_STATUS " + std::to_string(status)};
  }
  int64_t workspace_bytes = 0;
  get_workspace_size(workspace_bytes);
  check_device_memory("cuDNN's frontend: the workspace", workspace, static_cast<size_t>(workspace_bytes), kAlignment,
                      context.device);
  const auto matrix = [&](const Tensor& tensor, const char* name) {
    const auto found = data.find(tensor->get_uid());
    if (found == data.end()) fault(std::string("no pointer for ") + name);
    const Matrix made(*tensor, found->second);
    check_device_memory(std::string("cuDNN's frontend: ") + name, made.data, made.num_bytes(), kAlignment,
                        context.device);
    check_disjoint(std::string("cuDNN's frontend: ") + name, made.data, made.num_bytes(), "the workspace", workspace,
                   static_cast<size_t>(workspace_bytes));
    return made;
  };
  Attention attention;
  attention.scale = scale_;
  attention.terms = terms_;
  attention.query = matrix(query_, "query");
  attention.key = matrix(key_, "key");
  attention.value = matrix(value_, "value");
  attention.out = matrix(out_, "out");
  attention.statistics = matrix(statistics_, "statistics");
  if (is_backward_) {
    attention.grad = matrix(grad_, "the gradient of out");
    attention.grad_query = matrix(grad_query_, "the gradient of query");
    attention.grad_key = matrix(grad_key_, "the gradient of key");
    attention.grad_value = matrix(grad_value_, "the gradient of value");
  }
  if (terms_.bias != nullptr) attention.bias = matrix(terms_.bias, "bias");
  if (terms_.kept != nullptr) attention.kept = matrix(terms_.kept, "the dropout mask");
  // Query, key and value may be parts of one matrix, and their gradients parts of another one.
  const Attention& a = attention;
  const auto check_apart = [](const std::vector<const Matrix*>& one, const std::vector<const Matrix*>& other) {
    for (const Matrix* x : one) {
      for (const Matrix* y : other) {
        check_disjoint("cuDNN's frontend: a tensor", x->data, x->num_bytes(), "another one", y->data, y->num_bytes());
      }
    }
  };
  check_apart({&a.query, &a.key, &a.value}, {&a.out, &a.statistics});
  check_apart({&a.out}, {&a.statistics});
  if (is_backward_) {
    check_apart({&a.grad_query, &a.grad_key, &a.grad_value},
                {&a.query, &a.key, &a.value, &a.out, &a.statistics, &a.grad});
  }
  compute_on(context.stream, [a, is_backward = is_backward_] {
    for (int64_t batch = 0; batch < a.query.sizes[0]; ++batch) {
      for (int64_t head = 0; head < (is_backward ? a.key : a.query).sizes[1]; ++head) {
        is_backward ? a.backward(batch, head) : a.forward(batch, head);
      }
    }
  });
  return {};
}

}}  // namespace cudnn_frontend::graph
