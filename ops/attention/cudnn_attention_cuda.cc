#include <tandem/ops/attention/cudnn_attention.h>

#include <algorithm>
#include <array>
#include <cstddef>
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

#include <tandem/base/math.h>
#include <tandem/ops/attention/attention_bias.h>
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

/// The tensors of a pass, which are also their ids in cuDNN's graph. A forward pass has no gradients; bias and kept
/// weights are optional.
enum {
  kQuery,
  kKey,
  kValue,
  kOut,
  kStatistics,
  kBias,
  kKeptWeights,
  kGradOut,
  kGradQuery,
  kGradKey,
  kGradValue,
  kNumTensors
};

/// The keys of a query relative to a diagonal of the scores, which contains the first query and key, or the last ones:
/// at most `left_bound` - 1 keys before the diagonal, and none after it if is_causal.
struct Band {
  bool is_causal = false;
  bool ends_at_last_key = false;
  int64_t left_bound = 0;  ///< 0: no limit

  bool operator==(const Band&) const = default;
};

/// An attention that cuDNN may compute.
struct Problem {
  DType dtype;
  bool is_backward;
  Band band;
  float scale;
  float dropout_scale = 1;                    ///< of kept weights
  std::array<Layout, kNumTensors> layouts{};  ///< by the ids above; sizes 0: the pass has no such tensor
  BiasRows bias_rows{};

  bool has(int id) const { return layouts[static_cast<size_t>(id)].sizes[0] != 0; }
  auto key() const {
    std::vector<int64_t> numbers = {is_backward, band.is_causal, band.ends_at_last_key, band.left_bound};
    for (const Layout& layout : layouts) {
      numbers.insert(numbers.end(), layout.sizes.begin(), layout.sizes.end());
      numbers.insert(numbers.end(), layout.strides.begin(), layout.strides.end());
    }
    return std::tuple(dtype, scale, dropout_scale, std::move(numbers));
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

/// The number of leading dimensions before the heads, which are one dimension, or two of grouped heads.
size_t num_batch_dims(const AttentionCall& call) {
  const size_t dims = call.batch_shape.size();
  return dims - std::min<size_t>(dims, call.sizes.group > 1 ? 2 : 1);
}

/// The tensor with its leading dimensions as [batch, heads]; nullopt if no strides describe that, or not of 16-byte
/// steps. A shared tensor has a head per group.
std::optional<Layout> layout_of(const AttentionCall& call, const AttentionTensor& tensor, int64_t rows, int64_t columns,
                                bool is_shared) {
  const size_t dims = call.batch_shape.size(), is_grouped = call.sizes.group > 1 ? 1 : 0;
  const size_t heads = num_batch_dims(call);
  const int64_t row_step = tensor.strides[dims];
  Layout layout = {{1, 1, rows, columns}, {rows * row_step, rows * row_step, row_step, 1}};
  auto& [sizes, strides] = layout;
  const bool fits =
      join_dims(call.batch_shape, tensor.strides, heads, dims - (is_shared ? is_grouped : 0), sizes[1], strides[1]) &&
      join_dims(call.batch_shape, tensor.strides, 0, heads, sizes[0], strides[0]);
  return fits && is_step(row_step) ? std::optional(layout) : std::nullopt;
}

/// A dense tensor.
Layout dense_layout(const std::array<int64_t, 4>& sizes) {
  return {sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1}};
}

/// The band, if cuDNN computes it without a bias. Every query of it has a key.
std::optional<Band> band_of(const AttentionCall& call) {
  const AttentionSizes& sizes = call.sizes;
  if (sizes.is_full() || sizes.is_causal()) return Band{.is_causal = sizes.is_causal()};
  const int64_t later_keys = sizes.keys - sizes.queries;
  const bool is_limited = sizes.band_end < AttentionSizes::kUnlimited;
  if (later_keys < 0 || (is_limited && sizes.band_end != 1 && sizes.band_end != later_keys + 1)) return std::nullopt;
  Band band = {.is_causal = is_limited, .ends_at_last_key = is_limited && sizes.band_end != 1};
  if (sizes.band_begin > -AttentionSizes::kUnlimited) {
    band.left_bound = 1 - sizes.band_begin + (band.ends_at_last_key ? later_keys : 0);
    if (band.left_bound < 1) return std::nullopt;
  }
  return band;
}

/// The rows of the bias that adds the call's mask and band.
BiasRows bias_rows_of(const AttentionCall& call) {
  const size_t heads = num_batch_dims(call), dims = call.batch_shape.size();
  const auto varies = [&](size_t begin, size_t end) {
    for (size_t d = begin; d < end && call.mask.tensor.data != nullptr; ++d) {
      if (call.batch_shape[d] > 1 && call.mask.tensor.strides[d] != 0) return true;
    }
    return false;
  };
  BiasRows rows = {1, 1, call.sizes.queries, varies(0, heads), varies(heads, dims)};
  for (size_t d = 0; d < dims; ++d) (d < heads ? rows.batches : rows.heads) *= call.batch_shape[d];
  return rows;
}

/// The problem; nullopt if cuDNN does not compute such attention, or not these memory layouts.
std::optional<Problem> problem_of(const AttentionCall& call, const AttentionGradients* grads) {
  const AttentionSizes& sizes = call.sizes;
  const auto has_size = [](int64_t size) { return size > 0 && size <= 256 && size % 8 == 0; };
  if ((call.dtype != kBFloat16 && call.dtype != kFloat16) || sizes.batches * sizes.queries * sizes.keys == 0 ||
      (grads != nullptr && sizes.queries == 1) || !has_size(sizes.head_dim) || !has_size(sizes.value_dim) ||
      call.dropout.scale == 0) {
    return std::nullopt;
  }
  Problem problem = {call.dtype, grads != nullptr, {}, static_cast<float>(sizes.scale)};
  bool fits = true;
  const auto add = [&](int id, const AttentionTensor& tensor, int64_t rows, int64_t columns, bool is_shared = false) {
    const auto layout = layout_of(call, tensor, rows, columns, is_shared);
    fits = fits && layout;
    if (fits) problem.layouts[static_cast<size_t>(id)] = *layout;
  };
  add(kQuery, call.query, sizes.queries, sizes.head_dim);
  add(kKey, call.key, sizes.keys, sizes.head_dim, /*is_shared=*/true);
  add(kValue, call.value, sizes.keys, sizes.value_dim, /*is_shared=*/true);
  add(kOut, call.out, sizes.queries, sizes.value_dim);
  if (grads != nullptr) {
    add(kGradOut, grads->out, sizes.queries, sizes.value_dim);
    add(kGradQuery, grads->query, sizes.queries, sizes.head_dim);
    add(kGradKey, grads->key, sizes.keys, sizes.head_dim, /*is_shared=*/true);
    add(kGradValue, grads->value, sizes.keys, sizes.value_dim, /*is_shared=*/true);
  }
  if (!fits) return std::nullopt;
  const int64_t batch = problem.layouts[kQuery].sizes[0], heads = problem.layouts[kQuery].sizes[1];
  problem.layouts[kStatistics] = dense_layout({batch, heads, sizes.queries, 1});
  const bool has_mask = call.mask.tensor.data != nullptr, has_dropout = call.dropout.threshold != 0;
  const std::optional<Band> band = band_of(call);
  if (has_mask || !band || (has_dropout && *band != Band{.is_causal = band->is_causal})) {
    problem.bias_rows = bias_rows_of(call);
    const BiasRows& rows = problem.bias_rows;
    problem.layouts[kBias] =
        dense_layout({rows.per_batch ? batch : 1, rows.per_head ? heads : 1, sizes.queries, sizes.keys});
    problem.band.is_causal = sizes.band_end == 1;  // in the bias too; so cuDNN skips blocks
  } else {
    problem.band = *band;
  }
  if (has_dropout) {
    problem.layouts[kKeptWeights] = dense_layout({batch, heads, sizes.queries, sizes.keys});
    problem.dropout_scale = static_cast<float>(call.dropout.scale);
    if (grads != nullptr) problem.layouts[kOut] = dense_layout({batch, heads, sizes.queries, sizes.value_dim});
  }
  return problem;
}

/// The parts of the workspace: cuDNN's own, then tensors that the call does not have, as offsets in bytes.
struct Workspace {
  int64_t bias = 0, shifts = 0, log_sums = 0, kept_weights = 0, unscaled_out = 0;
  int64_t num_bytes = 0;

  Workspace(const Problem& problem, int64_t cudnn_bytes) : num_bytes(cudnn_bytes) {
    const auto add = [&](int64_t& offset, int64_t bytes) {
      offset = round_up(num_bytes, 256);
      num_bytes = offset + bytes;
    };
    const auto& scores = problem.layouts[kQuery].sizes;
    const int64_t queries = scores[0] * scores[1] * scores[2], keys = problem.layouts[kKey].sizes[2];
    if (problem.has(kBias)) {
      add(bias, problem.bias_rows.count() * keys * 4);
      add(shifts, problem.bias_rows.count() * 4);
      add(log_sums, queries * 4);
    }
    if (problem.has(kKeptWeights)) {
      add(kept_weights, round_up(queries * keys * 2, 16));
      if (problem.is_backward) add(unscaled_out, queries * problem.layouts[kOut].sizes[3] * 2);
    }
  }
};

std::string text_of(const Problem& p) {
  const auto& q = p.layouts[kQuery].sizes;
  const auto& v = p.layouts[kValue].sizes;
  return str("attention ", p.is_backward ? "backward " : "", p.dtype, " [", q[0], ", ", q[1], ", ", q[2], ", ", q[3],
             "], keys [", v[1], ", ", v[2], ", ", v[3], "]", p.band.is_causal ? ", causal" : "",
             p.band.ends_at_last_key ? " from the last key" : "", p.band.left_bound != 0 ? ", window" : "",
             p.has(kBias) ? ", bias" : "", p.has(kKeptWeights) ? ", dropout" : "");
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
      .set_data_type(id == kStatistics || id == kBias ? fe::DataType_t::FLOAT
                     : problem.dtype == kBFloat16     ? fe::DataType_t::BFLOAT16
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

/// Limit of the memory for a bias, kept weights and the result without dropout's scale.
constexpr int64_t kMaxTensorBytes = int64_t{4} << 30;

/// A graph with a plan, for one handle.
struct Plan {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;

  Plan(cudnnHandle_t handle, const Problem& problem) {
    if (Workspace(problem, 0).num_bytes > kMaxTensorBytes) throw Failure{"its mask or dropout would take over 4 GiB"};
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    const auto input = [&](int id) { return graph.tensor(attributes_of(problem, id)); };
    const auto query = input(kQuery), key = input(kKey), value = input(kValue);
    const auto set_options = [&](auto& options) {
      options.set_attn_scale(problem.scale);
      const Band& band = problem.band;
      options.set_diagonal_alignment(band.ends_at_last_key ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                           : fe::DiagonalAlignment_t::TOP_LEFT);
      if (band.is_causal) options.set_diagonal_band_right_bound(0);
      if (band.left_bound != 0) options.set_diagonal_band_left_bound(static_cast<int>(band.left_bound));
      if (problem.has(kBias)) options.set_bias(input(kBias));
    };
    const auto number = [](float x) { return std::make_shared<fe::graph::Tensor_attributes>(x); };
    if (problem.is_backward) {
      auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
      set_options(options.set_deterministic_algorithm(true));
      if (problem.has(kKeptWeights)) {
        options.set_dropout(input(kKeptWeights), number(problem.dropout_scale), number(1));  // see write_unscaled_out
      }
      auto [grad_query, grad_key, grad_value] =
          graph.sdpa_backward(query, key, value, input(kOut), input(kGradOut), input(kStatistics), options);
      set_result(grad_query, problem, kGradQuery);
      set_result(grad_key, problem, kGradKey);
      set_result(grad_value, problem, kGradValue);
    } else {
      auto options = fe::graph::SDPA_attributes().set_name("attention");
      set_options(options.set_generate_stats(true));
      if (problem.has(kKeptWeights)) options.set_dropout(input(kKeptWeights), number(problem.dropout_scale));
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
    for (int id = 0; id < kNumTensors; ++id) {
      if (problem.has(id)) data[id] = pointers[static_cast<size_t>(id)];
    }
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
  return plan == nullptr ? 0 : std::max<int64_t>(1, Workspace(*problem, plan->workspace_bytes).num_bytes);
}

bool cudnn_attention(const KernelContext& context, const AttentionCall& call, const AttentionGradients* grads,
                     void* workspace) {
  const std::optional<Problem> problem = problem_of(call, grads);
  if (!problem) return false;
  Pointers pointers = pointers_of(call, grads);
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  std::unique_ptr<Plan>& plan = plan_of(own, *problem);
  if (plan == nullptr) return false;
  const Workspace parts(*problem, plan->workspace_bytes);
  const auto part = [&](int64_t offset) { return static_cast<std::byte*>(workspace) + offset; };
  const BiasRows& rows = problem->bias_rows;
  auto* const shifts = reinterpret_cast<float*>(part(parts.shifts));
  auto* const log_sums = reinterpret_cast<float*>(part(parts.log_sums));
  if (problem->has(kBias)) {
    pointers[kBias] = part(parts.bias);
    pointers[kStatistics] = log_sums;
  }
  if (problem->has(kKeptWeights)) {
    pointers[kKeptWeights] = part(parts.kept_weights);
    if (problem->is_backward) pointers[kOut] = part(parts.unscaled_out);
  }
  constexpr uintptr_t kAlignment = 16;
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % kAlignment != 0) return false;
  }
  if (problem->has(kBias)) {
    write_attention_bias(context, call, rows, static_cast<float*>(pointers[kBias]), shifts);
    if (problem->is_backward) read_biased_statistics(context, call, rows, shifts, log_sums);
  }
  if (problem->has(kKeptWeights)) {
    write_kept_weights(context, call, pointers[kKeptWeights]);
    if (problem->is_backward) write_unscaled_out(context, call, pointers[kOut]);
  }
  try {
    if (cudnnSetStream(own.handle, static_cast<cudaStream_t>(context.stream)) != CUDNN_STATUS_SUCCESS) {
      throw Failure{"cudnnSetStream failed"};
    }
    plan->execute(own.handle, *problem, pointers, workspace);
    if (problem->has(kBias) && !problem->is_backward) finish_biased_attention(context, call, rows, shifts, log_sums);
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
