#include <tandem/ops/conv/cudnn_plan.h>

#include <utility>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;
/// An engine for the gradient of filters with relative errors of up to 2e-4 in float32 (5 x 5 filters, cuDNN 9.19 on an
/// H200), where other engines have 2e-7. None of its notes says so.
constexpr int64_t kInexactEngine = 17;

cudnnDataType_t type_of(DType dtype) {
  return dtype == kFloat16 ? CUDNN_DATA_HALF : dtype == kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Sizes in the order N, C, H, W; memory in the order N, H, W, C. A virtual tensor has no memory: an operation of the
/// graph computes it for the next one.
CudnnDescriptor make_tensor(int64_t id, DType dtype, int64_t n, int64_t c, int64_t h, int64_t w,
                            bool is_virtual = false) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c});
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kPlanAlignment);
  tensor.finalize();
  return tensor;
}

CudnnDescriptor make_convolution(const ConvGeometry& g) {
  CudnnDescriptor conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {g.padding.height, g.padding.width});
  conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {g.end_padding().height, g.end_padding().width});
  conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {g.stride.height, g.stride.width});
  conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {g.dilation.height, g.dilation.width});
  conv.finalize();
  return conv;
}

/// sum = a + b, where b has one element per channel.
CudnnDescriptor make_addition(const CudnnDescriptor& mode, const CudnnDescriptor& a, const CudnnDescriptor& b,
                              const CudnnDescriptor& sum) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, sum);
  operation.finalize();
  return operation;
}

CudnnDescriptor make_addition_mode() {
  CudnnDescriptor mode(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t add = CUDNN_POINTWISE_ADD;
  mode.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &add);
  mode.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  mode.finalize();
  return mode;
}

/// The names of a pass's attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t input, filters, output, conv, alpha, beta;
};

const PassNames& names_of(ConvPass pass) {
  static constexpr PassNames kNames[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  return kNames[static_cast<int>(pass)];
}

CudnnDescriptor make_engine_config() { return CudnnDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR); }

/// The engine configurations that a heuristic of cuDNN proposes, best first.
std::vector<CudnnDescriptor> proposals(const CudnnTarget& target, const CudnnDescriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.handle == nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  heuristic.finalize();
  int64_t count = 0;
  TANDEM_CUDNN_CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < count; ++i) {
    configs.push_back(make_engine_config());
    pointers.push_back(configs.back().get());
  }
  TANDEM_CUDNN_CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, pointers.data()));
  configs.erase(configs.begin() + count, configs.end());  // the second count may be smaller
  return configs;
}

/// Whether an engine is deterministic, sums products in float32 and, if keeps_float32, does not round to tf32.
bool is_exact(const CudnnDescriptor& engine, bool keeps_float32) {
  for (const auto note :
       engine.values<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 32)) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP: break;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (keeps_float32) return false;
        break;
      default: return false;  // not deterministic, transforms, operands or sums of lower precision
    }
  }
  return true;
}

}  // namespace

std::string conv_text(ConvPass pass, DType dtype, const ConvGeometry& g) {
  static constexpr const char* kPasses[] = {"forward", "backward of input", "backward of weight"};
  const auto pair = [](Size2d size) { return str(size.height, "x", size.width); };
  return str(kPasses[static_cast<int>(pass)], " ", dtype, " [", g.batch, ", ", g.channels, ", ", g.size.height, ", ",
             g.size.width, "], ", g.out_channels, " filters ", pair(g.kernel), ", stride ", pair(g.stride),
             ", padding ", pair(g.padding), ", dilation ", pair(g.dilation), ", groups ", g.groups,
             g.end_padding() == g.padding ? "" : ", end padding " + pair(g.end_padding()), g.has_bias ? ", bias" : "");
}

ConvPlan make_conv_plan(const CudnnTarget& target, ConvPass pass, DType dtype, bool tf32, const ConvGeometry& g) {
  std::vector<CudnnDescriptor> parts;
  const auto keep = [&](CudnnDescriptor part) { return parts.push_back(std::move(part)), parts.size() - 1; };
  const bool is_forward = pass == ConvPass::kForward;
  const auto make_input = [&](int64_t id, DType type, bool is_virtual) {
    return make_tensor(id, type, g.batch, g.channels, g.size.height, g.size.width, is_virtual);
  };
  const auto make_output = [&](int64_t id, DType type, bool is_virtual) {
    return make_tensor(id, type, g.batch, g.out_channels, g.out.height, g.out.width, is_virtual);
  };
  const size_t input = keep(make_input(kInputId, dtype, false));
  const size_t filters =
      keep(make_tensor(kFiltersId, dtype, g.out_channels, g.group_channels(), g.kernel.height, g.kernel.width));
  const size_t output = keep(make_output(kOutputId, dtype, false));
  const size_t biased = is_forward ? output : input;
  const size_t products =  // without the bias
      !g.has_bias ? biased : keep(is_forward ? make_output('p', kFloat32, true) : make_input('p', kFloat32, true));
  const size_t conv = keep(make_convolution(g));

  const PassNames& names = names_of(pass);
  CudnnDescriptor operation(names.operation);
  operation.set(names.input, parts[is_forward ? input : products]);
  operation.set(names.filters, parts[filters]);
  operation.set(names.output, parts[is_forward ? products : output]);
  operation.set(names.conv, parts[conv]);
  operation.set(names.alpha, 1.0f);
  operation.set(names.beta, 0.0f);
  operation.finalize();

  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (g.has_bias) {
    const size_t bias = keep(make_tensor(kBiasId, dtype, 1, is_forward ? g.out_channels : g.channels, 1, 1));
    const size_t mode = keep(make_addition_mode());
    const size_t add = keep(make_addition(parts[mode], parts[products], parts[bias], parts[biased]));
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, {&operation, &parts[add]});
  } else {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  }
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  graph.finalize();

  std::string reason = "no deterministic algorithm that sums products";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      for (CudnnDescriptor& config : proposals(target, graph, mode)) {
        CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        cudnnBackendDescriptor_t pointer = engine.get();
        int64_t count = 0;
        TANDEM_CUDNN_CHECK(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &pointer));
        const int64_t number = engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        const bool keeps_float32 = dtype == kFloat32 && !tf32;
        if (!is_exact(engine, keeps_float32)) continue;
        if (keeps_float32 && pass == ConvPass::kBackwardWeight && number == kInexactEngine) continue;
        try {
          CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
          plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
          if (target.handle != nullptr) {
            plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
          } else {
            plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
          }
          plan.finalize();
          const int64_t bytes = plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
          if (bytes > kMaxWorkspaceBytes) continue;
          for (CudnnDescriptor* part : {&operation, &graph, &config, &engine}) keep(std::move(*part));
          return {std::move(parts), std::move(plan), number, bytes};
        } catch (const CudnnFailure& failure) {  // the next proposal may work
          reason = failure.reason;
        }
      }
    } catch (const CudnnFailure& failure) {  // the next heuristic may work
      reason = failure.reason;
    }
  }
  throw CudnnFailure{reason};
}

}}}  // namespace tandem::v0::cuda
