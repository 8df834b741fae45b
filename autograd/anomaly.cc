#include <tandem/autograd/anomaly.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <tandem/autograd/nan_check.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 {

DetectAnomalyGuard::DetectAnomalyGuard(bool on)
    : context_(RankContext::current()), previous_(std::exchange(context_.detect_anomaly, on)) {}

namespace autograd {

bool has_nan(const Tensor& tensor) {
  if (!is_floating_point(tensor.dtype())) return false;
  cuda::check_not_capturing("anomaly detection, which reads results,");
  const std::vector<float> values = tensor.to_vector<float>();  // the conversion keeps NaN
  return std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

}  // namespace autograd

}}  // namespace tandem::v0
