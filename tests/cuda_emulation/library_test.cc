// The rules that the emulated cuBLASLt and cuDNN check: each test violates one.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cudnn.h>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

/// d = a b + bias with everything that a test may change: d is 3 x 5, the sum has 4 terms; column-major, as cuBLASLt.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  Buffer<float> a_data{std::vector<float>(64, 2)}, b_data{std::vector<float>(64, 3)}, d_data{64}, bias{8};
  Buffer<char> workspace{size_t{1} << 20};
  Stream stream;
  float alpha = 1, beta = 0;

  explicit Product(int64_t a_leading = 3, cudaDataType_t scale = CUDA_R_32F, cudaDataType_t b_type = CUDA_R_32F,
                   uint64_t b_rows = 4) {
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, scale), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 3, 4, a_leading), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&b, b_type, b_rows, 5, 4), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 3, 5, 3), CUBLAS_STATUS_SUCCESS);
  }
  void add_bias(const void* pointer) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer, sizeof(pointer));
  }
  cublasStatus_t choose(uint32_t alignment = 16, uint64_t workspace_bytes = 1 << 20) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, 8);
    for (int name = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
         ++name) {
      cublasLtMatmulPreferenceSetAttribute(preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(name),
                                           &alignment, sizeof(alignment));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, d, d, preference, 1, &result, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    algorithm = result.algo;
    return status;
  }
  cublasStatus_t run(const void* a_pointer, void* d_pointer, const void* alpha_pointer, void* workspace_pointer,
                     size_t workspace_bytes, cudaStream_t on) {
    return cublasLtMatmul(handle, description, alpha_pointer, a_pointer, a, b_data.data(), b, &beta, d_pointer, d,
                          d_pointer, d, &algorithm, workspace_pointer, workspace_bytes, on);
  }
  cublasStatus_t run() {
    return run(a_data.data(), d_data.data(), &alpha, workspace.data(), workspace.num_bytes(), stream);
  }
};

TEST(CublasLt, UnsupportedTypesHaveNoAlgorithm) {
  Product mixed(3, CUDA_R_32F, CUDA_R_16F);
  EXPECT_EQ(mixed.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  Product without_memory;
  EXPECT_EQ(without_memory.choose(16, 0), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(CublasLt, WrongDescriptionsEndTheProcess) {
  Product narrow(2), wide(3, CUDA_R_64F), unequal(3, CUDA_R_32F, CUDA_R_32F, 3), without_bias;
  EXPECT_DEATH(narrow.choose(), "a leading dimension of 2 for 3 rows");
  EXPECT_DEATH(wide.choose(), "the scale type does not belong to the compute type");
  EXPECT_DEATH(unequal.choose(), "the sizes of a, b, c and d do not match");
  without_bias.add_bias(nullptr);
  EXPECT_DEATH(without_bias.choose(), "an epilogue with a bias without its pointer");
  const int64_t batches = 2;
  EXPECT_DEATH(cublasLtMatrixLayoutSetAttribute(narrow.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, 8),
               "an attribute of 8 bytes, expected 4");
  cublasLtMatrixLayoutDestroy(wide.b);
  EXPECT_DEATH(wide.choose(), "an argument is no object of the right type");
}

TEST(CublasLt, WrongMemoryEndsTheProcess) {
  Product product;
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  float* const a = product.a_data.data();
  float* const d = product.d_data.data();
  char* const memory = product.workspace.data();
  const size_t bytes = product.workspace.num_bytes();
  const float* const alpha = &product.alpha;
  const auto run = [&](const void* from, void* to, const void* scale, void* scratch, size_t scratch_bytes) {
    product.run(from, to, scale, scratch, scratch_bytes, product.stream);
  };
  EXPECT_DEATH(run(a + 1, d, alpha, memory, bytes), "a is not aligned to 16 bytes");
  EXPECT_DEATH(run(a + 56, d, alpha, memory, bytes), "a: 48 bytes are not inside a live block of cuda:0");
  EXPECT_DEATH(run(alpha, d, alpha, memory, bytes), "a: 48 bytes are not inside a live block of cuda:0");
  EXPECT_DEATH(run(a, a + 4, alpha, memory, bytes), "d overlaps a");
  EXPECT_DEATH(run(a, d, a, memory, bytes), "alpha is not in host memory");
  EXPECT_DEATH(run(a, d, alpha, memory, bytes - 1), "the workspace is smaller than the algorithm's");
  EXPECT_DEATH(run(a, d, alpha, memory + 16, bytes), "workspace is not aligned to 256 bytes");
  EXPECT_DEATH(run(a, d, alpha, memory + 256, bytes), "workspace: 1048576 bytes are not inside a live block");
  EXPECT_DEATH(run(a, d, alpha, nullptr, bytes), "workspace: 1048576 bytes are not inside a live block");
}

TEST(CublasLt, BiasOutsideDeviceMemoryEndsTheProcess) {
  const float host[3] = {};
  Product product;
  product.add_bias(host);
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_DEATH(product.run(), "bias: 12 bytes are not inside a live block of cuda:0");
}

TEST(CublasLt, OtherDeviceOrProductEndsTheProcess) {
  Product product, other(4);
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(other.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_CUDA(cudaSetDevice(1));
  {
    const Stream there;
    const Buffer<float> memory(64);
    EXPECT_DEATH(product.run(product.a_data.data(), product.d_data.data(), &product.alpha, product.workspace.data(),
                             product.workspace.num_bytes(), there),
                 "the stream belongs to another device than the handle");
    EXPECT_DEATH(product.run(memory.data(), product.d_data.data(), &product.alpha, product.workspace.data(),
                             product.workspace.num_bytes(), product.stream),
                 "a: 48 bytes are not inside a live block of cuda:0");
  }
  EXPECT_CUDA(cudaSetDevice(0));
  product.algorithm = other.algorithm;
  EXPECT_DEATH(product.run(), "the algorithm was chosen for another product");
}

using Descriptor = cudnnBackendDescriptor_t;

Descriptor make(cudnnBackendDescriptorType_t type) {
  Descriptor d = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(type, &d), CUDNN_STATUS_SUCCESS);
  return d;
}

template <class T>
void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::vector<T> values) {
  EXPECT_EQ(cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(values.size()), values.data()),
            CUDNN_STATUS_SUCCESS);
}

Descriptor tensor(int64_t id, std::vector<int64_t> sizes, int64_t alignment = 16) {
  const Descriptor d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {id});
  set<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {alignment});
  set<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
  set<char>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, {0});
  set<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
               {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]});
  set<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::move(sizes));
  return d;
}

/// A convolution of [1, 2, 4, 4] by 3 filters of 2 x 2 with a result of [1, 3, 3, 3], step by step.
struct Convolution {
  cudnnHandle_t handle = nullptr;
  Descriptor x, w, y, conv, operation, graph, plan = nullptr, pack = nullptr;
  Buffer<float> x_data{std::vector<float>(32, 2)}, w_data{std::vector<float>(24, 3)}, y_data{28};
  Buffer<char> workspace{size_t{1} << 20};
  Stream stream;

  explicit Convolution(int64_t y_height = 3, int64_t w_id = 'w') : x(tensor('x', {1, 2, 4, 4})) {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    w = tensor(w_id, {3, 2, 2, 2});
    y = tensor('y', {1, 3, y_height, 3});
    for (const Descriptor d : {x, w, y}) EXPECT_EQ(cudnnBackendFinalize(d), CUDNN_STATUS_SUCCESS);
    conv = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2});
    set<cudnnDataType_t>(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
    set<cudnnConvolutionMode_t>(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                {CUDNN_CROSS_CORRELATION});
    for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
      set<int64_t>(conv, name, CUDNN_TYPE_INT64, {0, 0});
    }
    for (const auto name : {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
      set<int64_t>(conv, name, CUDNN_TYPE_INT64, {1, 1});
    }
    EXPECT_EQ(cudnnBackendFinalize(conv), CUDNN_STATUS_SUCCESS);
    operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set<Descriptor>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, {x});
    set<Descriptor>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, {w});
    set<Descriptor>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, {y});
    set<Descriptor>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    {conv});
    set<float>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, {1});
    set<float>(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, {0});
    graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<Descriptor>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, {operation});
    set<cudnnHandle_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {handle});
  }

  /// Makes the plan of engine 1.
  void choose() {
    EXPECT_EQ(cudnnBackendFinalize(operation), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnBackendFinalize(graph), CUDNN_STATUS_SUCCESS);
    const Descriptor heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set<Descriptor>(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, {graph});
    set<cudnnBackendHeurMode_t>(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {CUDNN_HEUR_MODE_A});
    EXPECT_EQ(cudnnBackendFinalize(heuristic), CUDNN_STATUS_SUCCESS);
    Descriptor configs[] = {make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
    int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2,
                                       &count, configs),
              CUDNN_STATUS_SUCCESS);
    plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set<Descriptor>(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, {configs[1]});
    set<cudnnHandle_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {handle});
    EXPECT_EQ(cudnnBackendFinalize(plan), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
  }
  cudnnStatus_t run(std::vector<int64_t> ids, std::vector<void*> pointers, void* scratch) {
    pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::move(ids));
    set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::move(pointers));
    set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {scratch});
    EXPECT_EQ(cudnnBackendFinalize(pack), CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle, plan, pack);
  }
};

TEST(Cudnn, WrongDescriptorsEndTheProcess) {
  Convolution high(4), same_id(3, 'x'), c;
  EXPECT_DEATH(cudnnBackendFinalize(high.operation), "the output's size does not follow from the input's");
  EXPECT_DEATH(cudnnBackendFinalize(same_id.operation), "two tensors have the same id");
  EXPECT_DEATH(cudnnBackendFinalize(c.graph), "attribute 801 is a descriptor that is not finalized");
  EXPECT_DEATH(cudnnBackendFinalize(make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)), "attribute 100 is not set");
  EXPECT_DEATH(cudnnBackendFinalize(tensor('x', {1, 2, 4, 0})), "a tensor of size 0");
  EXPECT_DEATH(cudnnBackendFinalize(tensor('x', {1, 2, 4, 4}, 12)), "an alignment that is no power of two");
  EXPECT_DEATH(set<int64_t>(c.x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {1}),
               "an attribute of a finalized descriptor is set");
  EXPECT_DEATH(set<int64_t>(c.graph, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {1}),
               "attribute 906 does not belong to a descriptor of type 15");
  const Descriptor conv = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set<float>(conv, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_FLOAT, {16});
  EXPECT_DEATH(cudnnBackendFinalize(conv), "attribute 900 has the wrong type");
  cudnnBackendDestroyDescriptor(c.conv);
  EXPECT_DEATH(cudnnBackendFinalize(c.operation), "an argument does not exist");
}

TEST(Cudnn, WrongExecutionsEndTheProcess) {
  Convolution c;
  c.choose();
  float *const x = c.x_data.data(), *const w = c.w_data.data(), *const y = c.y_data.data();
  char* const memory = c.workspace.data();
  EXPECT_DEATH(c.run({'x', 'w', 'y'}, {x, w, y + 1}, memory), "the output is not aligned to 16 bytes");
  EXPECT_DEATH(c.run({'x', 'w', 'y'}, {x + 4, w, y}, memory), "the input: 128 bytes are not inside a live block");
  EXPECT_DEATH(c.run({'x', 'w', 'z'}, {x, w, y}, memory), "no pointer for the output");
  EXPECT_DEATH(c.run({'x', 'w', 'y'}, {x, w}, memory), "a variant pack with unequal numbers of ids and pointers");
  EXPECT_DEATH(c.run({'x', 'w', 'y'}, {x, x, y}, memory), "the filters overlaps the input");
  EXPECT_DEATH(c.run({'x', 'w', 'y'}, {x, w, y}, nullptr), "the workspace: 1048576 bytes are not inside a live block");
  EXPECT_CUDA(cudaSetDevice(1));
  {
    const Stream there;
    EXPECT_DEATH(cudnnSetStream(c.handle, there), "a stream of another device");
  }
  EXPECT_CUDA(cudaSetDevice(0));
}

TEST(LibraryCalls, AreRecordedAndFail) {
  forget_library_calls();
  fail_library_call("cublasLtCreate", 1, CUBLAS_STATUS_ALLOC_FAILED);
  cublasLtHandle_t handle = nullptr;
  cudnnHandle_t other = nullptr;
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cudnnCreate(&other), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(library_calls(), (std::vector<std::string>{"cublasLtCreate", "cublasLtCreate", "cudnnCreate"}));
  forget_library_calls();
  EXPECT_TRUE(library_calls().empty());
}

}}  // namespace cuda_emulation::testing
