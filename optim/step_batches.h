// Parameters that take the same step in the same place.  Private to optim/.
#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Collects the tensors of a step: those of one device, dtype and `Step` together, in the order in which they come.
template <class Step, class Tensors>
class StepBatches {
 public:
  struct Batch {
    Device device;
    DType dtype;
    Step step;
    std::vector<size_t> indices;  ///< of the parameters
    std::vector<Tensors> tensors;
  };

  void add(size_t index, const Tensor& parameter, const Step& step, const Tensors& tensors) {
    for (Batch& batch : batches_) {
      if (batch.device == parameter.device() && batch.dtype == parameter.dtype() && batch.step == step) {
        batch.indices.push_back(index);
        batch.tensors.push_back(tensors);
        return;
      }
    }
    batches_.push_back({parameter.device(), parameter.dtype(), step, {index}, {tensors}});
  }
  const std::vector<Batch>& all() const { return batches_; }

 private:
  std::vector<Batch> batches_;
};

}}}  // namespace tandem::v0::optim
