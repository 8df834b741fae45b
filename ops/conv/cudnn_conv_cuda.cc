#include <tandem/ops/conv/cudnn_conv.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <tandem/ops/common/library_fallback.h>
#include <tandem/ops/conv/cudnn_plan.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Key of the plans.
using Problem = std::tuple<ConvPass, DType, bool, std::array<int64_t, 17>>;

Problem problem_of(ConvPass pass, DType dtype, const ConvGeometry& g) {
  return {pass,
          dtype,
          allow_tf32(),
          {g.batch, g.channels, g.size.height, g.size.width, g.out_channels, g.out.height, g.out.width, g.kernel.height,
           g.kernel.width, g.stride.height, g.stride.width, g.padding.height, g.padding.width, g.dilation.height,
           g.dilation.width, g.groups, g.has_bias}};
}

struct Plans {
  std::map<Problem, std::optional<ConvPlan>> of;  ///< nullopt where tandem's own kernels compute
  std::set<Problem> unaligned;                    ///< of which a warning was logged
};
using Handle = CudnnHandle<Plans>;

void warn(ConvPass pass, DType dtype, const ConvGeometry& g, const std::string& reason) {
  warn_fallback("cuDNN", str("conv2d ", conv_text(pass, dtype, g)), reason);
}

/// Whether all sizes fit 32 bits, which some of cuDNN's engines assume.
bool is_in_range(const ConvGeometry& g) {
  const auto fits = [](int64_t count) { return count <= std::numeric_limits<int32_t>::max(); };
  return fits(g.batch * g.size.height * g.size.width * g.channels) && fits(g.out_pixels() * g.out_channels) &&
         fits(g.weight_elements());
}

/// Whether cuDNN can add a bias in this pass. To the gradient of a half input only tensor cores add one, for channels
/// in multiples of 8; other sizes have a plan for float16 only.
bool adds_bias(ConvPass pass, const ConvGeometry& g) {
  return pass == ConvPass::kForward || (g.group_channels() % 8 == 0 && g.group_out_channels() % 8 == 0);
}

/// Whether the number of results is that of cuDNN, which computes all that the input and its padding have.
bool computes_all(const ConvGeometry& g) {
  const auto is_full = [](int64_t size, int64_t padding, int64_t end, int64_t extent, int64_t stride, int64_t out) {
    return (size + padding + end - extent) / stride + 1 == out;
  };
  const Size2d end = g.end_padding();
  return is_full(g.size.height, g.padding.height, end.height, g.dilation.height * (g.kernel.height - 1) + 1,
                 g.stride.height, g.out.height) &&
         is_full(g.size.width, g.padding.width, end.width, g.dilation.width * (g.kernel.width - 1) + 1, g.stride.width,
                 g.out.width);
}

/// The plan of a pass; nullopt if cuDNN has no plan. The caller holds the mutex and has set the device.
std::optional<ConvPlan>& plan_of(Handle& own, const Problem& problem, ConvPass pass, DType dtype,
                                 const ConvGeometry& g) {
  const auto [found, is_new] = own.plans.of.try_emplace(problem);
  if (!is_new) return found->second;
  try {
    if (!is_in_range(g)) throw CudnnFailure{"more than 2^31 - 1 elements"};
    if (!computes_all(g)) throw CudnnFailure{"results at the end that are not computed"};
    if (own.handle == nullptr) TANDEM_CUDNN_CHECK(cudnnCreate(&own.handle));
    found->second = make_conv_plan({own.handle}, pass, dtype, allow_tf32(), g);
    log(LogLevel::kDebug, "cuDNN's engine ", found->second->engine, " computes conv2d ", conv_text(pass, dtype, g));
  } catch (const CudnnFailure& failure) {
    warn(pass, dtype, g, failure.reason);
  }
  return found->second;
}

}  // namespace

int64_t cudnn_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& g) {
  if (dtype == kFloat64 || g.work() == 0 || (g.has_bias && !adds_bias(pass, g))) return 0;
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  const std::optional<ConvPlan>& plan = plan_of(own, problem_of(pass, dtype, g), pass, dtype, g);
  return plan ? std::max<int64_t>(1, plan->workspace_bytes) : 0;
}

bool cudnn_conv(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& g, const void* input,
                const void* filters, const void* bias, const void* output, void* workspace) {
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  const Problem problem = problem_of(pass, dtype, g);
  std::optional<ConvPlan>& plan = plan_of(own, problem, pass, dtype, g);
  if (!plan) return false;
  for (const void* p : {input, filters, bias, output}) {
    if (reinterpret_cast<uintptr_t>(p) % kPlanAlignment == 0) continue;
    if (own.plans.unaligned.insert(problem).second)
      warn(pass, dtype, g, str("not aligned to ", kPlanAlignment, " bytes"));
    return false;
  }
  try {
    TANDEM_CUDNN_CHECK(cudnnSetStream(own.handle, static_cast<cudaStream_t>(context.stream)));
    const void* const pointers[] = {input, filters, output, bias};
    CudnnDescriptor data(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const int64_t ids[] = {kInputId, kFiltersId, kOutputId, kBiasId};
    const int64_t count = g.has_bias ? 4 : 3;
    data.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    data.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    data.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    data.finalize();
    TANDEM_CUDNN_CHECK(cudnnBackendExecute(own.handle, plan->plan.get(), data.get()));
    return true;
  } catch (const CudnnFailure& failure) {
    warn(pass, dtype, g, failure.reason);
    plan.reset();
    return false;
  }
}

}}}  // namespace tandem::v0::cuda
