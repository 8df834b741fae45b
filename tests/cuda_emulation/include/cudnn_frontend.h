// The part of cuDNN's frontend that tandem uses, for the emulation: attention on the CPU, with checked arguments.
//
// A violation of the documented rules ends the process. README.md lists what is checked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace cudnn_frontend {

enum class DataType_t { NOT_SET, FLOAT, HALF, BFLOAT16 };
enum class HeurMode_t { A };
enum class BuildPlanPolicy_t { HEURISTICS_CHOICE };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };

struct error_t {
  std::string message;  // empty: no error

  bool is_good() const { return message.empty(); }
  bool is_bad() const { return !message.empty(); }
  std::string get_message() { return message; }
};

namespace graph {

class Tensor_attributes {
 public:
  Tensor_attributes() = default;
  explicit Tensor_attributes(float number) : type_(DataType_t::FLOAT), number_(number) {}  // passed by value
  float number() const { return number_; }
  Tensor_attributes& set_uid(int64_t uid) { return uid_ = uid, *this; }
  Tensor_attributes& set_dim(const std::vector<int64_t>& dim) { return dim_ = dim, *this; }
  Tensor_attributes& set_stride(const std::vector<int64_t>& stride) { return stride_ = stride, *this; }
  Tensor_attributes& set_data_type(DataType_t type) { return type_ = type, *this; }
  Tensor_attributes& set_output(bool is_output) { return is_output_ = is_output, *this; }
  int64_t get_uid() const { return uid_; }
  std::vector<int64_t> get_dim() const { return dim_; }
  std::vector<int64_t> get_stride() const { return stride_; }
  DataType_t get_data_type() const { return type_; }
  bool get_output() const { return is_output_; }

 private:
  int64_t uid_ = -1;
  std::vector<int64_t> dim_, stride_;
  DataType_t type_ = DataType_t::NOT_SET;
  bool is_output_ = false;
  float number_ = 0;
};

/// Which scores take part, and by which factors.
struct AttentionTerms {
  DiagonalAlignment_t alignment = DiagonalAlignment_t::TOP_LEFT;
  int64_t right_bound = -1, left_bound = 0;  // no limits
  std::shared_ptr<Tensor_attributes> bias, kept;
  float kept_scale = 1, inverse_scale = 1;
};

/// Attributes of both passes.
template <class Self>
class AttentionAttributes {
 public:
  Self& set_name(const std::string&) { return self(); }
  Self& set_attn_scale(float scale) { return this->scale = scale, self(); }
  Self& set_diagonal_alignment(DiagonalAlignment_t value) { return terms.alignment = value, self(); }
  Self& set_diagonal_band_right_bound(int value) { return terms.right_bound = value, self(); }
  Self& set_diagonal_band_left_bound(int value) { return terms.left_bound = value, self(); }
  Self& set_bias(std::shared_ptr<Tensor_attributes> value) { return terms.bias = std::move(value), self(); }

  float scale = 1;
  AttentionTerms terms;

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

class SDPA_attributes : public AttentionAttributes<SDPA_attributes> {
 public:
  SDPA_attributes& set_generate_stats(bool value) { return has_statistics = value, *this; }
  SDPA_attributes& set_dropout(std::shared_ptr<Tensor_attributes> kept,
                               const std::shared_ptr<Tensor_attributes>& factor) {
    terms.kept = std::move(kept), terms.kept_scale = factor->number();
    return *this;
  }
  bool has_statistics = false;
};

class SDPA_backward_attributes : public AttentionAttributes<SDPA_backward_attributes> {
 public:
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) { return is_deterministic = value, *this; }
  SDPA_backward_attributes& set_dropout(std::shared_ptr<Tensor_attributes> kept,
                                        const std::shared_ptr<Tensor_attributes>& factor,
                                        const std::shared_ptr<Tensor_attributes>& inverse) {
    terms.kept = std::move(kept), terms.kept_scale = factor->number(), terms.inverse_scale = inverse->number();
    return *this;
  }
  bool is_deterministic = false;
};

/// A graph of one attention.
class Graph {
 public:
  using Tensor = std::shared_ptr<Tensor_attributes>;

  Graph& set_intermediate_data_type(DataType_t type) { return intermediate_ = type, *this; }
  Graph& set_compute_data_type(DataType_t type) { return compute_ = type, *this; }
  Tensor tensor(const Tensor_attributes& attributes) { return std::make_shared<Tensor_attributes>(attributes); }
  std::array<Tensor, 2> sdpa(Tensor query, Tensor key, Tensor value, const SDPA_attributes& attributes);
  std::array<Tensor, 3> sdpa_backward(Tensor query, Tensor key, Tensor value, Tensor out, Tensor grad,
                                      Tensor statistics, const SDPA_backward_attributes& attributes);

  error_t validate();
  error_t build_operation_graph(cudnnHandle_t handle);
  error_t create_execution_plans(const std::vector<HeurMode_t>& modes);
  error_t check_support(cudnnHandle_t handle);
  error_t build_plans(cudnnHandle_t handle, BuildPlanPolicy_t policy);
  error_t get_workspace_size(int64_t& num_bytes) const;
  error_t execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& data, void* workspace) const;

 private:
  /// The steps that a graph needs, in this order.
  enum class State { kNew, kValid, kBuilt, kProposed, kSupported, kPlanned };
  /// Records the call and goes to `next`; the error to inject, if any.
  error_t advance(const char* call, State from, State next);
  std::vector<Tensor> all() const;

  DataType_t intermediate_ = DataType_t::NOT_SET, compute_ = DataType_t::NOT_SET;
  State state_ = State::kNew;
  cudnnHandle_t handle_ = nullptr;
  bool is_backward_ = false, is_deterministic_ = false, has_statistics_ = false;
  float scale_ = 1;
  AttentionTerms terms_;
  Tensor query_, key_, value_, out_, statistics_, grad_, grad_query_, grad_key_, grad_value_;
};

}  // namespace graph
}  // namespace cudnn_frontend
