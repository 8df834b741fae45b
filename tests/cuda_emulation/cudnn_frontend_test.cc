// The rules that the emulated frontend of cuDNN checks: each test violates one.
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

/// The forward pass of one head: 2 queries and 3 keys of size 8, all ones. Ids: query 1, key 2, value 3, out 4,
/// statistics 5.
struct Attention {
  static constexpr uint16_t kOne = 0x3c00;  // of float16
  cudnnHandle_t handle = nullptr;
  Stream stream;
  std::unique_ptr<fe::graph::Graph> graph = std::make_unique<fe::graph::Graph>();
  Buffer<uint16_t> query{std::vector<uint16_t>(2 * 8, kOne)}, keys{std::vector<uint16_t>(2 * 3 * 8, kOne)}, out{2 * 8};
  Buffer<float> statistics{2};
  Buffer<char> workspace{1024};
  std::unordered_map<int64_t, void*> data = {
      {1, query.data()}, {2, keys.data()}, {3, keys.data() + 3 * 8}, {4, out.data()}, {5, statistics.data()}};

  /// Id 6 is a bias of `bias_keys` keys, if any.
  explicit Attention(int64_t key_size = 8, int64_t statistics_id = 5, fe::DataType_t type = fe::DataType_t::HALF,
                     int64_t bias_keys = 0) {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    graph->set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    const auto tensor = [&](int64_t id, int64_t rows, int64_t columns) {
      return graph->tensor(attributes(id, rows, columns, type));
    };
    auto options = fe::graph::SDPA_attributes().set_attn_scale(0.5f).set_generate_stats(true);
    if (bias_keys != 0) {
      options.set_bias(graph->tensor(attributes(6, 2, bias_keys, fe::DataType_t::FLOAT)));
    }
    auto [result, sums] = graph->sdpa(tensor(1, 2, 8), tensor(2, 3, key_size), tensor(3, 3, 8), options);
    *result = attributes(4, 2, 8, type).set_output(true);
    *sums = attributes(statistics_id, 2, 1, fe::DataType_t::FLOAT).set_output(true);
  }
  static Tensor_attributes attributes(int64_t id, int64_t rows, int64_t columns, fe::DataType_t type) {
    return Tensor_attributes()
        .set_uid(id)
        .set_dim({1, 1, rows, columns})
        .set_stride({rows * columns, rows * columns, columns, 1})
        .set_data_type(type);
  }
  void plan() {
    EXPECT_TRUE(graph->validate().is_good());
    EXPECT_TRUE(graph->build_operation_graph(handle).is_good());
    EXPECT_TRUE(graph->create_execution_plans({fe::HeurMode_t::A}).is_good());
    EXPECT_TRUE(graph->check_support(handle).is_good());
    EXPECT_TRUE(graph->build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE).is_good());
  }
};

TEST(CudnnFrontend, WrongGraphsEndTheProcess) {
  Attention other_bias(8, 5, fe::DataType_t::HALF, 4);
  EXPECT_DEATH(other_bias.graph->validate(), "bias: its sizes do not match the others'");
  Attention other_key(16), same_id(8, 4), wide(8, 5, fe::DataType_t::FLOAT), skipped;
  EXPECT_DEATH(other_key.graph->validate(), "key: its sizes do not match the others'");
  EXPECT_DEATH(same_id.graph->validate(), "two tensors have the same id");
  EXPECT_DEATH(wide.graph->validate(), "attention of a type that is not half");
  EXPECT_DEATH(skipped.graph->build_operation_graph(skipped.handle),
               "build_operation_graph is called in the wrong order");
  EXPECT_DEATH(fe::graph::Graph().validate(), "a graph without operations");
}

TEST(CudnnFrontend, OtherHeadSizesHaveNoPlan) {
  for (const int64_t size : {4, 264}) {
    SCOPED_TRACE(size);
    fe::graph::Graph graph;
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    const auto tensor = [&](int64_t id) {
      return graph.tensor(Attention::attributes(id, 2, size, fe::DataType_t::HALF));
    };
    auto [out, sums] =
        graph.sdpa(tensor(1), tensor(2), tensor(3), fe::graph::SDPA_attributes().set_generate_stats(true));
    *out = Attention::attributes(4, 2, size, fe::DataType_t::HALF).set_output(true);
    *sums = Attention::attributes(5, 2, 1, fe::DataType_t::FLOAT).set_output(true);
    cudnnHandle_t handle = nullptr;
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_TRUE(graph.validate().is_good());
    EXPECT_TRUE(graph.build_operation_graph(handle).is_good());
    EXPECT_TRUE(graph.create_execution_plans({fe::HeurMode_t::A}).is_good());
    EXPECT_TRUE(graph.check_support(handle).is_bad());
  }
}

TEST(CudnnFrontend, WrongExecutionsEndTheProcess) {
  Attention a, unplanned;
  a.plan();
  const auto run = [&](int64_t id, void* pointer, void* scratch) {
    std::unordered_map<int64_t, void*> data = a.data;
    data[id] = pointer;
    a.graph->execute(a.handle, data, scratch);
  };
  char* const memory = a.workspace.data();
  EXPECT_DEATH(run(1, a.query.data() + 1, memory), "query: 32 bytes are not inside a live block|query is not aligned");
  EXPECT_DEATH(run(1, a.out.data(), memory), "a tensor overlaps another one");
  EXPECT_DEATH(run(5, memory, memory), "statistics overlaps the workspace");
  EXPECT_DEATH(run(1, a.query.data(), nullptr), "the workspace: 256 bytes are not inside a live block");
  a.data.erase(3);
  EXPECT_DEATH(a.graph->execute(a.handle, a.data, memory), "no pointer for value");
  EXPECT_DEATH(a.graph->execute(unplanned.handle, a.data, memory), "another handle");
  EXPECT_DEATH(unplanned.graph->execute(unplanned.handle, a.data, memory), "execution of a graph without a plan");
}

}}  // namespace cuda_emulation::testing
