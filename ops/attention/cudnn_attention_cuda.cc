#include <tandem/ops/attention/cudnn_attention.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#if __has_include(<cudnn_frontend.h>)
#include <cudnn_frontend.h>
#define TANDEM_HAS_CUDNN_FRONTEND 1
#endif

#include <tandem/ops/common/cudnn_graph_cuda.h>
#include <tandem/ops/common/library_fallback.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// A tensor as cuDNN addresses it: [batch, heads, rows, columns], with strides in elements.
struct Layout {
  std::array<int64_t, 4> sizes, strides;
};

/// The tensors of a pass, which are also their ids in cuDNN's graph.
enum { kQuery, kKey, kValue, kOut, kStatistics, kGradOut, kGradQuery, kGradKey, kGradValue, kNumTensors };

/// An attention that cuDNN may compute.
struct Problem {
  DType dtype;
  bool is_backward;
  bool is_causal;
  float scale;
  std::vector<Layout> layouts;  ///< by the ids above

  auto key() const {
    std::vector<int64_t> numbers = {is_backward, is_causal};
    for (const Layout& layout : layouts) {
      numbers.insert(numbers.end(), layout.sizes.begin(), layout.sizes.end());
      numbers.insert(numbers.end(), layout.strides.begin(), layout.strides.end());
    }
    return std::tuple(dtype, scale, std::move(numbers));
  }
};

using Pointers = std::array<void*, kNumTensors>;

Pointers pointers_of(const AttentionCall& call, const AttentionGradients* grads) {
  Pointers all = {call.query.data, call.key.data, call.value.data, call.out.data, call.statistics};
  if (grads != nullptr) {
    all[kGradOut] = grads->out.data;
    all[kGradQuery] = grads->query.data;
    all[kGradKey] = grads->key.data;
    all[kGradValue] = grads->value.data;
  }
  return all;
}

bool is_step(int64_t stride) { return stride > 0 && stride % 8 == 0; }

/// Joins dimensions [begin, end) into one, of which `size` is multiplied by the sizes and `stride` is set; false if no
/// stride describes it, or not one of 16-byte steps.
bool join_dims(std::span<const int64_t> sizes, std::span<const int64_t> strides, size_t begin, size_t end,
               int64_t& size, int64_t& stride) {
  int64_t next = 0;  // stride that the next outer dimension must have, 0 for any
  for (size_t d = end; d-- > begin;) {
    if (sizes[d] == 1) continue;
    if (!is_step(strides[d]) || (next != 0 && strides[d] != next)) return false;
    if (next == 0) stride = strides[d];
    size *= sizes[d];
    next = strides[d] * sizes[d];
  }
  return true;
}

/// The tensor with its leading dimensions as [batch, heads]; nullopt if no strides describe that, or not of 16-byte
/// steps. A shared tensor has a head per group.
std::optional<Layout> layout_of(const AttentionCall& call, const AttentionTensor& tensor, int64_t rows, int64_t columns,
                                bool is_shared) {
  const size_t dims = call.batch_shape.size(), is_grouped = call.sizes.group > 1 ? 1 : 0;
  const size_t heads = dims - std::min(dims, 1 + is_grouped);
  const int64_t row_step = tensor.strides[dims];
  Layout layout = {{1, 1, rows, columns}, {rows * row_step, rows * row_step, row_step, 1}};
  auto& [sizes, strides] = layout;
  const bool fits =
      join_dims(call.batch_shape, tensor.strides, heads, dims - (is_shared ? is_grouped : 0), sizes[1], strides[1]) &&
      join_dims(call.batch_shape, tensor.strides, 0, heads, sizes[0], strides[0]);
  return fits && is_step(row_step) ? std::optional(layout) : std::nullopt;
}

/// The problem; nullopt if cuDNN does not compute such attention, or not these memory layouts.
std::optional<Problem> problem_of(const AttentionCall& call, const AttentionGradients* grads) {
  const AttentionSizes& sizes = call.sizes;
  const auto has_size = [](int64_t size) { return size > 0 && size <= 256 && size % 8 == 0; };
  if ((call.dtype != kBFloat16 && call.dtype != kFloat16) || call.mask.tensor.data != nullptr ||
      (!sizes.is_full() && !sizes.is_causal()) || call.dropout.threshold != 0 ||
      sizes.batches * sizes.queries * sizes.keys == 0 || (grads != nullptr && sizes.queries == 1) ||
      !has_size(sizes.head_dim) || !has_size(sizes.value_dim)) {
    return std::nullopt;
  }
  Problem problem = {call.dtype, grads != nullptr, sizes.is_causal(), static_cast<float>(sizes.scale), {}};
  const auto add = [&](const AttentionTensor& tensor, int64_t rows, int64_t columns, bool is_shared = false) {
    const auto layout = layout_of(call, tensor, rows, columns, is_shared);
    if (layout) problem.layouts.push_back(*layout);
  };
  add(call.query, sizes.queries, sizes.head_dim);
  add(call.key, sizes.keys, sizes.head_dim, /*is_shared=*/true);
  add(call.value, sizes.keys, sizes.value_dim, /*is_shared=*/true);
  add(call.out, sizes.queries, sizes.value_dim);
  if (problem.layouts.size() != kStatistics) return std::nullopt;
  const int64_t batch = problem.layouts[0].sizes[0], heads = problem.layouts[0].sizes[1];
  problem.layouts.push_back({{batch, heads, sizes.queries, 1}, {heads * sizes.queries, sizes.queries, 1, 1}});
  if (grads != nullptr) {
    add(grads->out, sizes.queries, sizes.value_dim);
    add(grads->query, sizes.queries, sizes.head_dim);
    add(grads->key, sizes.keys, sizes.head_dim, /*is_shared=*/true);
    add(grads->value, sizes.keys, sizes.value_dim, /*is_shared=*/true);
    if (problem.layouts.size() != kNumTensors) return std::nullopt;
  }
  return problem;
}

std::string text_of(const Problem& p) {
  const auto& q = p.layouts[kQuery].sizes;
  const auto& v = p.layouts[kValue].sizes;
  return str("attention ", p.is_backward ? "backward " : "", p.dtype, " [", q[0], ", ", q[1], ", ", q[2], ", ", q[3],
             "], keys [", v[1], ", ", v[2], ", ", v[3], "]", p.is_causal ? ", causal" : "");
}

#ifdef TANDEM_HAS_CUDNN_FRONTEND

namespace fe = cudnn_frontend;

/// A status of cuDNN's frontend that is an error, as text.
struct Failure {
  std::string reason;
};

void check(fe::error_t error) {
  if (error.is_bad()) throw Failure{error.get_message()};
}

fe::graph::Tensor_attributes attributes_of(const Problem& problem, int id) {
  const Layout& layout = problem.layouts[static_cast<size_t>(id)];
  return fe::graph::Tensor_attributes()
      .set_uid(id)
      .set_dim({layout.sizes.begin(), layout.sizes.end()})
      .set_stride({layout.strides.begin(), layout.strides.end()})
      .set_data_type(id == kStatistics            ? fe::DataType_t::FLOAT
                     : problem.dtype == kBFloat16 ? fe::DataType_t::BFLOAT16
                                                  : fe::DataType_t::HALF);
}

/// Declares a result of the graph.
void set_result(const std::shared_ptr<fe::graph::Tensor_attributes>& result, const Problem& problem, int id) {
  const fe::graph::Tensor_attributes attributes = attributes_of(problem, id);
  result->set_output(true)
      .set_uid(id)
      .set_dim(attributes.get_dim())
      .set_stride(attributes.get_stride())
      .set_data_type(attributes.get_data_type());
}

/// A graph with a plan, for one handle.
struct Plan {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;

  Plan(cudnnHandle_t handle, const Problem& problem) {
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    const auto input = [&](int id) { return graph.tensor(attributes_of(problem, id)); };
    const auto query = input(kQuery), key = input(kKey), value = input(kValue);
    if (problem.is_backward) {
      auto options = fe::graph::SDPA_backward_attributes()
                         .set_name("attention_backward")
                         .set_attn_scale(problem.scale)
                         .set_causal_mask(problem.is_causal)
                         .set_deterministic_algorithm(true);
      auto [grad_query, grad_key, grad_value] =
          graph.sdpa_backward(query, key, value, input(kOut), input(kGradOut), input(kStatistics), options);
      set_result(grad_query, problem, kGradQuery);
      set_result(grad_key, problem, kGradKey);
      set_result(grad_value, problem, kGradValue);
    } else {
      auto options = fe::graph::SDPA_attributes()
                         .set_name("attention")
                         .set_attn_scale(problem.scale)
                         .set_causal_mask(problem.is_causal)
                         .set_generate_stats(true);
      auto [out, statistics] = graph.sdpa(query, key, value, options);
      set_result(out, problem, kOut);
      set_result(statistics, problem, kStatistics);
    }
    check(graph.validate());
    check(graph.build_operation_graph(handle));
    check(graph.create_execution_plans({fe::HeurMode_t::A}));
    check(graph.check_support(handle));
    check(graph.build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE));
    check(graph.get_workspace_size(workspace_bytes));
  }

  void execute(cudnnHandle_t handle, const Problem& problem, const Pointers& pointers, void* workspace) {
    std::unordered_map<int64_t, void*> data;
    for (size_t id = 0; id < problem.layouts.size(); ++id) data[static_cast<int64_t>(id)] = pointers[id];
    check(graph.execute(handle, data, workspace));
  }
};

using Plans = std::map<decltype(Problem().key()), std::unique_ptr<Plan>>;  // null where tandem's own kernels compute
using Handle = CudnnHandle<Plans>;

/// The plan of a problem; null if cuDNN has no plan. The caller holds the mutex and has set the device.
std::unique_ptr<Plan>& plan_of(Handle& own, const Problem& problem) {
  const auto [found, is_new] = own.plans.try_emplace(problem.key());
  if (!is_new) return found->second;
  try {
    if (own.handle == nullptr && cudnnCreate(&own.handle) != CUDNN_STATUS_SUCCESS) throw Failure{"cudnnCreate failed"};
    found->second = std::make_unique<Plan>(own.handle, problem);
    log(LogLevel::kDebug, "cuDNN computes ", text_of(problem));
  } catch (const Failure& failure) {
    warn_fallback("cuDNN", text_of(problem), failure.reason);
  }
  return found->second;
}

#endif

}  // namespace

#ifdef TANDEM_HAS_CUDNN_FRONTEND

int64_t cudnn_attention_workspace_bytes(const KernelContext& context, const AttentionCall& call,
                                        const AttentionGradients* grads) {
  const std::optional<Problem> problem = problem_of(call, grads);
  if (!problem) return 0;
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  const std::unique_ptr<Plan>& plan = plan_of(own, *problem);
  return plan == nullptr ? 0 : std::max<int64_t>(1, plan->workspace_bytes);
}

bool cudnn_attention(const KernelContext& context, const AttentionCall& call, const AttentionGradients* grads,
                     void* workspace) {
  const std::optional<Problem> problem = problem_of(call, grads);
  if (!problem) return false;
  const Pointers pointers = pointers_of(call, grads);
  constexpr uintptr_t kAlignment = 16;
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % kAlignment != 0) return false;
  }
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  std::unique_ptr<Plan>& plan = plan_of(own, *problem);
  if (plan == nullptr) return false;
  try {
    if (cudnnSetStream(own.handle, static_cast<cudaStream_t>(context.stream)) != CUDNN_STATUS_SUCCESS) {
      throw Failure{"cudnnSetStream failed"};
    }
    plan->execute(own.handle, *problem, pointers, workspace);
    return true;
  } catch (const Failure& failure) {
    warn_fallback("cuDNN", text_of(*problem), failure.reason);
    plan.reset();
    return false;
  }
}

#else

int64_t cudnn_attention_workspace_bytes(const KernelContext&, const AttentionCall& call,
                                        const AttentionGradients* grads) {
  if (const auto problem = problem_of(call, grads)) {
    static const bool warned = [&] {
      warn_fallback("cuDNN", text_of(*problem), "tandem was built without the headers of cuDNN's frontend");
      return true;
    }();
    static_cast<void>(warned);
  }
  return 0;
}

bool cudnn_attention(const KernelContext&, const AttentionCall&, const AttentionGradients*, void*) { return false; }

#endif

}}}  // namespace tandem::v0::cuda
