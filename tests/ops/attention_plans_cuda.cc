// Asks cuDNN's attention, without a GPU, for the plans by which an H200 would compute tandem's attention in half types:
// cuDNN accepts a description of a GPU in place of one.
//
//   attention_plans_test --table    prints the plans of the GPT models as a Markdown table
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tests/ops/plans_main.h>

// The functions of the CUDA runtime that the frontend calls: without a GPU the real ones fail. It asks for the compute
// capability, and measures plans only on request.
extern "C" {
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = 9;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error of the CUDA runtime"; }
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaErrorNotSupported; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceSynchronize() { return cudaErrorNotSupported; }
}

namespace tandem {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

/// An attention of the tests, or of a model.
struct Problem {
  const char* source;
  int64_t batch, heads, queries, keys, head_dim, value_dim;
  bool is_causal;
  bool is_packed;  // qkv_attention: query, key and value are slices of one projection
  bool has_mask = false;
  int64_t shared_heads = 0;  // heads of key and value; 0: as many as of query
  bool ends_at_last_key = false;
  int64_t left_bound = 0;  // 0: no limit
  bool has_dropout = false;

  int64_t key_heads() const { return shared_heads == 0 ? heads : shared_heads; }
};

constexpr Problem packed(const char* source, int64_t batch, int64_t heads, int64_t length, int64_t head_dim,
                         bool is_causal = true, bool has_mask = false) {
  return {source, batch, heads, length, length, head_dim, head_dim, is_causal, true, has_mask};
}

constexpr Problem with_dropout(Problem problem) {
  problem.has_dropout = true;
  return problem;
}

constexpr Problem with_window(Problem problem, int64_t left_bound) {
  problem.left_bound = left_bound;
  return problem;
}

constexpr Problem kModels[] = {packed("GPT-2 124M, batch 64", 64, 12, 1024, 64),
                               packed("GPT-2 124M, batch 4", 4, 12, 1024, 64), packed("gpt-384", 4, 6, 256, 64),
                               packed("gpt-small", 16, 4, 128, 32)};

// Models whose attention has options.
constexpr Problem kOptions[] = {
    with_dropout(packed("GPT-2 124M with dropout", 4, 12, 1024, 64)),
    packed("BERT with padded batches", 32, 12, 512, 64, false, true),
    with_dropout(packed("BERT with padded batches and dropout", 32, 12, 512, 64, false, true)),
    {"Mistral 7B, window of 4096", 1, 32, 8192, 8192, 128, 128, true, false, false, 8, false, 4097},
    {"Llama 3 8B, 128 tokens after a cache", 1, 32, 128, 4096, 128, 128, true, false, false, 8, true},
};

// tests/ops/attention_cases.cc, attention_test.cc, tests/nn/attention_test.cc and tests/benchmarks.
constexpr Problem kTests[] = {
    {"case with a mask", 1, 2, 3, 7, 5, 4, true, false, true},
    {"case", 1, 2, 4, 5, 3, 6, false, false},
    {"case", 1, 2, 3, 3, 3, 3, false, false},
    {"case", 1, 1, 1, 7, 1, 2, false, false},
    {"case", 2, 1, 7, 2, 8, 1, true, false},
    {"case, threads", 1, 19, 70, 300, 8, 8, false, false},
    {"case, threads", 1, 19, 70, 300, 8, 8, true, false},
    {"case, threads", 1, 1, 300, 300, 8, 8, true, false},
    packed("case with a mask", 2, 2, 3, 3, true, true),
    packed("case", 2, 2, 4, 2),
    packed("case", 1, 1, 7, 2, false),
    packed("case", 2, 3, 2, 1),
    packed("case", 2, 3, 65, 8),
    packed("case, threads", 3, 7, 65, 8),
    packed("case, benchmark", 1, 8, 1024, 64),
    packed("case, benchmark", 1, 8, 1024, 64, false),
    {"MatchesComposition", 1, 2, 31, 31, 33, 8, false, false},
    {"MatchesComposition", 1, 3, 33, 33, 32, 32, false, false},
    {"MatchesComposition", 1, 1, 65, 65, 64, 64, true, false},
    {"MatchesComposition", 1, 2, 130, 130, 1, 80, false, false},
    {"MatchesComposition", 1, 1, 65, 300, 8, 3, false, false},
    {"MatchesComposition", 1, 1, 300, 65, 3, 17, true, false},
    {"MatchesComposition", 1, 1, 3, 600, 8, 8, false, false},
    {"MatchesComposition", 1, 1, 3, 600, 8, 8, true, false},
    {"MatchesComposition", 1, 17, 70, 66, 8, 8, true, false},
    {"MatchesComposition", 1, 2, 300, 300, 80, 33, false, false},
    {"MatchesComposition", 1, 1, 5, 70, 130, 200, false, false},
    {"MatchesComposition", 1, 2, 67, 5, 3, 129, false, false},
    packed("MatchesAttentionOfItsParts", 2, 3, 33, 8, true, true),
    packed("MatchesAttentionOfItsParts", 2, 3, 33, 8, false, true),
    {"GroupedHeadsMatchRepeatedHeads", 2, 6, 67, 70, 8, 16, true, false, false, 2},
    {"benchmark of grouped heads", 1, 8, 512, 512, 64, 64, true, false, false, 2},
    {"BandsMatchBoolMasks", 2, 1, 65, 600, 8, 16, true, false, false, 0, true},
    {"BandsMatchBoolMasks", 2, 1, 70, 330, 8, 16, true, false, false, 0, true, 21},
    {"BandsMatchBoolMasks", 2, 1, 5, 70, 8, 16, false, false, true},
    {"DropoutMatchesDropoutOfComposedWeights", 1, 4, 67, 67, 8, 72, true, false, false, 2, false, 0, true},
    {"MasksBroadcastToTheScores", 2, 3, 67, 70, 8, 16, true, false, true},
    with_dropout(packed("mask and dropout", 2, 2, 40, 8, false, true)),
    with_window(packed("window", 2, 2, 40, 8), 4),
    packed("traffic", 1, 2, 128, 64),
    packed("traffic of the GPT block", 2, 2, 64, 64),
    packed("one position", 1, 1, 1, 8, false),
    packed("widest heads", 2, 4, 100, 256),
};

const std::shared_ptr<const fe::DeviceProperties>& h200() {
  static const std::shared_ptr<const fe::DeviceProperties> properties = [] {
    std::ifstream file("tests/ops/h200.json");
    const std::vector<uint8_t> json{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto made = std::make_shared<fe::DeviceProperties>();
    fe::error_t error = made->deserialize(json);
    EXPECT_TRUE(error.is_good()) << error.get_message();
    return made;
  }();
  return properties;
}

/// A plan, or the reason for its absence.
struct Plan {
  std::string name;
  int64_t workspace_bytes = 0;
  std::string refusal = "";
};

/// The request to cuDNN.
enum class Depth {
  kSupport,  // whether a plan is supported, in milliseconds
  kPlan,     // a complete plan; compiling its kernels takes about a second
};

Plan plan_of(fe::graph::Graph& graph, Depth depth) {
  graph.set_device_properties(h200()).set_sm_version(90);
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(nullptr);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph.check_support(nullptr);
  if (error.is_good() && depth == Depth::kPlan) {
    error = graph.build_plans(nullptr, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  }
  Plan plan;
  if (error.is_bad()) plan.refusal = error.get_message();
  if (error.is_bad() || depth == Depth::kSupport) return plan;
  error = graph.get_plan_name(plan.name);
  if (error.is_good()) error = graph.get_workspace_size(plan.workspace_bytes);
  EXPECT_TRUE(error.is_good()) << error.get_message();
  return plan;
}

fe::graph::Graph graph_of(fe::DataType_t type) {
  fe::graph::Graph graph;
  graph.set_io_data_type(type)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

/// Lays tensors out as tandem does: [batch, heads, length, dim] as rows of a projection, or contiguous.
class Layout {
 public:
  explicit Layout(const Problem& p) : p_(p) {}
  Tensor_attributes query(const char* name) const {
    return tensor(name, p_.heads, p_.queries, p_.head_dim, is_slice());
  }
  Tensor_attributes key(const char* name) const {
    return tensor(name, p_.key_heads(), p_.keys, p_.head_dim, is_slice());
  }
  Tensor_attributes value(const char* name) const {
    return tensor(name, p_.key_heads(), p_.keys, p_.value_dim, is_slice());
  }
  Tensor_attributes out(const char* name) const { return tensor(name, p_.heads, p_.queries, p_.value_dim, 1); }
  Tensor_attributes mask() const {
    return Tensor_attributes()
        .set_name("mask")
        .set_dim({1, 1, p_.queries, p_.keys})
        .set_stride({p_.queries * p_.keys, p_.queries * p_.keys, p_.keys, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
  Tensor_attributes kept_weights() const {
    const int64_t matrix = p_.queries * p_.keys;
    return Tensor_attributes()
        .set_name("kept_weights")
        .set_dim({p_.batch, p_.heads, p_.queries, p_.keys})
        .set_stride({p_.heads * matrix, matrix, p_.keys, 1});
  }
  Tensor_attributes statistics() const {
    return Tensor_attributes()
        .set_name("statistics")
        .set_dim({p_.batch, p_.heads, p_.queries, 1})
        .set_stride({p_.heads * p_.queries, p_.queries, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }

 private:
  int64_t is_slice() const { return p_.is_packed ? 3 : 1; }
  Tensor_attributes tensor(const char* name, int64_t heads, int64_t length, int64_t dim, int64_t parts) const {
    const int64_t row = parts * heads * dim;
    const std::vector<int64_t> rows = {length * row, dim, row, 1};
    const std::vector<int64_t> contiguous = {heads * length * dim, length * dim, dim, 1};
    return Tensor_attributes()
        .set_name(name)
        .set_dim({p_.batch, heads, length, dim})
        .set_stride(p_.is_packed ? rows : contiguous);
  }
  const Problem& p_;
};

void lay_out(const std::shared_ptr<Tensor_attributes>& result, const Tensor_attributes& layout) {
  result->set_output(true).set_dim(layout.get_dim()).set_stride(layout.get_stride());
}

/// The options that ops/attention/cudnn_attention_cuda.cc sets.
template <class Options>
void set_options(Options& options, fe::graph::Graph& graph, const Problem& p) {
  options.set_attn_scale(1 / std::sqrt(static_cast<float>(p.head_dim)));
  options.set_diagonal_alignment(p.ends_at_last_key ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                    : fe::DiagonalAlignment_t::TOP_LEFT);
  if (p.is_causal) options.set_diagonal_band_right_bound(0);
  if (p.left_bound != 0) options.set_diagonal_band_left_bound(static_cast<int>(p.left_bound));
  if (p.has_mask) options.set_bias(graph.tensor(Layout(p).mask()));
}

std::shared_ptr<Tensor_attributes> number(float value) { return std::make_shared<Tensor_attributes>(value); }

Plan forward_plan(const Problem& p, fe::DataType_t type, Depth depth) {
  fe::graph::Graph graph = graph_of(type);
  const Layout layout(p);
  auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  set_options(options, graph, p);
  if (p.has_dropout) options.set_dropout(graph.tensor(layout.kept_weights()), number(1.25f));
  auto [out, statistics] = graph.sdpa(graph.tensor(layout.query("query")), graph.tensor(layout.key("key")),
                                      graph.tensor(layout.value("value")), options);
  lay_out(out, layout.out("out"));
  lay_out(statistics, layout.statistics());
  statistics->set_data_type(fe::DataType_t::FLOAT);
  return plan_of(graph, depth);
}

Plan backward_plan(const Problem& p, fe::DataType_t type, Depth depth, bool is_deterministic = true) {
  fe::graph::Graph graph = graph_of(type);
  const Layout layout(p);
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention_backward")
                     .set_deterministic_algorithm(is_deterministic);
  set_options(options, graph, p);
  if (p.has_dropout) options.set_dropout(graph.tensor(layout.kept_weights()), number(1.25f), number(0.8f));
  auto [query, key, value] = graph.sdpa_backward(
      graph.tensor(layout.query("query")), graph.tensor(layout.key("key")), graph.tensor(layout.value("value")),
      graph.tensor(layout.out("out")), graph.tensor(layout.out("grad")), graph.tensor(layout.statistics()), options);
  lay_out(query, layout.query("grad_query"));
  lay_out(key, layout.key("grad_key"));
  lay_out(value, layout.value("grad_value"));
  return plan_of(graph, depth);
}

std::string text_of(const Problem& p) {
  return std::string(p.source) + ": " + std::to_string(p.batch) + " x " + std::to_string(p.heads) + " heads, " +
         std::to_string(p.queries) + " x " + std::to_string(p.keys) + ", head sizes " + std::to_string(p.head_dim) +
         " and " + std::to_string(p.value_dim) + (p.is_causal ? ", causal" : "") + (p.has_mask ? ", mask" : "") +
         (p.ends_at_last_key ? ", from the last key" : "") + (p.left_bound != 0 ? ", window" : "") +
         (p.has_dropout ? ", dropout" : "");
}

/// cuDNN's documented limits of head sizes on Hopper.
bool has_supported_heads(const Problem& p) {
  return p.head_dim % 8 == 0 && p.value_dim % 8 == 0 && p.head_dim <= 256 && p.value_dim <= 256;
}

constexpr fe::DataType_t kTypes[] = {fe::DataType_t::BFLOAT16, fe::DataType_t::HALF};

TEST(AttentionPlans, EveryModelHasDeterministicPlans) {
  for (const Problem& problem : kModels) {
    SCOPED_TRACE(text_of(problem));
    for (const Plan& plan :
         {forward_plan(problem, kTypes[0], Depth::kPlan), backward_plan(problem, kTypes[0], Depth::kPlan)}) {
      EXPECT_EQ(plan.refusal, "");
      EXPECT_FALSE(plan.name.empty());
      EXPECT_LE(plan.workspace_bytes, int64_t{2} << 30);
    }
    EXPECT_EQ(forward_plan(problem, kTypes[1], Depth::kSupport).refusal, "");
    EXPECT_EQ(backward_plan(problem, kTypes[1], Depth::kSupport).refusal, "");
  }
}

TEST(AttentionPlans, MasksBandsAndDropoutHaveThePlansOfModels) {
  for (const Problem& problem : kOptions) {
    SCOPED_TRACE(text_of(problem));
    for (const Plan& plan :
         {forward_plan(problem, kTypes[0], Depth::kPlan), backward_plan(problem, kTypes[0], Depth::kPlan)}) {
      EXPECT_EQ(plan.refusal, "");
      EXPECT_FALSE(plan.name.empty());
    }
  }
}

// The plans' numerical notes do not tell whether they are deterministic; the workspace for partial sums does.
TEST(AttentionPlans, DeterministicBackwardNeedsWorkspaceForPartialSums) {
  const Plan deterministic = backward_plan(kModels[1], kTypes[0], Depth::kPlan);
  const Plan other = backward_plan(kModels[1], kTypes[0], Depth::kPlan, /*is_deterministic=*/false);
  EXPECT_GT(deterministic.workspace_bytes, 4 * other.workspace_bytes);
}

TEST(AttentionPlans, TestsAreSupportedIfTheirHeadSizesAreMultiplesOfEight) {
  for (const Problem& problem : kTests) {
    for (const fe::DataType_t type : kTypes) {
      SCOPED_TRACE(text_of(problem));
      const bool is_supported = has_supported_heads(problem);
      const std::string forward = forward_plan(problem, type, Depth::kSupport).refusal;
      EXPECT_EQ(forward.empty(), is_supported) << forward;
      const std::string backward = backward_plan(problem, type, Depth::kSupport).refusal;
      EXPECT_EQ(backward.empty(), is_supported && !(problem.queries == 1 && problem.keys == 1)) << backward;
    }
  }
}

}  // namespace

void print_plans() {
  std::cout << "| attention (bfloat16) | forward: plan, bytes of workspace | backward: plan, bytes of workspace "
               "|\n|---|---|---|\n";
  std::vector<Problem> problems(std::begin(kModels), std::end(kModels));
  problems.insert(problems.end(), std::begin(kOptions), std::end(kOptions));
  for (const Problem& p : problems) {
    std::cout << "| " << p.source << ": " << p.heads << " heads, length " << p.queries << ", head size " << p.head_dim
              << " |";
    for (const Plan& plan : {forward_plan(p, kTypes[0], Depth::kPlan), backward_plan(p, kTypes[0], Depth::kPlan)}) {
      std::cout << " " << plan.name.substr(0, plan.name.find("_k24=")) << ", " << plan.workspace_bytes << " |";
    }
    std::cout << "\n";
  }
}

}  // namespace tandem
