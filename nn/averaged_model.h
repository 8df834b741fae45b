// Averages of a model's parameters during training: EMA and stochastic weight averaging.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/nn/norm.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Returns the next average, given the average of num_averaged parameters and the current parameter.
using AverageFunction = std::function<Tensor(const Tensor& averaged, const Tensor& current, int64_t num_averaged)>;

/// Exponential moving average: decay averaged + (1 - decay) current. Throws ValueError unless 0 <= decay <= 1.
TANDEM_API AverageFunction get_ema_avg_fn(double decay = 0.999);
/// Mean of all parameters: averaged + (current - averaged) / (num_averaged + 1).
TANDEM_API AverageFunction get_swa_avg_fn();

/// Options of AveragedModel.
struct AveragedModelOptions {
  AverageFunction avg_fn = get_swa_avg_fn();  ///< the average of a parameter
  bool use_buffers = false;  ///< floating-point buffers are averaged too; else all buffers are copied from the model
};

/// The part of AveragedModel that does not depend on the model's type.
class TANDEM_API AveragedModelBase : public Module {
 public:
  /// Adds the parameters of `model` to the averages. The first call copies them. Throws ValueError unless the
  /// parameters and buffers have the names, shapes and dtypes of the averages. Records nothing for autograd.
  /// Synchronizes with the device of n_averaged.
  void update_parameters(const Module& model);

  Tensor& n_averaged = add_buffer("n_averaged", make_count());  ///< int64 [], the number of updates; a buffer

 protected:
  /// Throws ValueError if avg_fn is empty.
  explicit AveragedModelBase(AveragedModelOptions options);
  /// Makes the second instance a copy of `model` (copy_state), and moves this module to its device.
  void copy_from(const Module& model, Module& average);

 private:
  static Tensor make_count();

  AveragedModelOptions options_;
};

/// A second instance of the model M whose parameters are averages of the parameters of the trained model:
/// torch.optim.swa_utils.AveragedModel.
///
///     Net model(10);
///     nn::AveragedModel<Net> averaged(model, {.avg_fn = nn::get_ema_avg_fn(0.999)}, 10);
///     for (...) {
///       ...
///       optimizer.step();
///       averaged.update_parameters(model);  // with DistributedDataParallel: ddp.module(); the ranks stay equal
///     }
///     nn::update_bn(loader, averaged);      // if the model has batch norms
///     averaged.eval();
///     averaged(images);
///
/// The keys of state_dict() are PyTorch's: "n_averaged", and the model's with "module." before them. B. Polyak, A.
/// Juditsky, "Acceleration of stochastic approximation by averaging", 1992; P. Izmailov et al., "Averaging weights
/// leads to wider optima and better generalization", UAI 2018.
template <class M>
class AveragedModel : public AveragedModelBase {
 public:
  /// Constructs the second instance as M(args...), which are the arguments of `model`, and makes it a copy of `model`:
  /// values, dtypes, devices and modes. Throws ValueError or StateError if their structures differ.
  template <class... Args>
  explicit AveragedModel(const M& model, AveragedModelOptions options = {}, Args&&... args)
      : AveragedModelBase(std::move(options)), module(add_instance(std::forward<Args>(args)...)) {
    copy_from(model, module);
  }

  /// Calls the averaged model.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return module(std::forward<Args>(args)...);
  }

  M& module;  ///< with the averages

 private:
  /// Does not advance the random streams.
  template <class... Args>
  M& add_instance(Args&&... args) {
    const GeneratorPositions positions;
    M& instance = add<M>("module", std::forward<Args>(args)...);
    positions.restore();
    return instance;
  }
};

class TrainingModes;

/// For update_bn: while in scope, the running statistics of a model's batch norms are the means over all calls. The
/// destructor restores the momenta and modes of the modules.
class TANDEM_API CumulativeBatchStatistics {
 public:
  /// Resets the running statistics and sets training mode.
  explicit CumulativeBatchStatistics(Module& model);
  ~CumulativeBatchStatistics();
  CumulativeBatchStatistics(const CumulativeBatchStatistics&) = delete;
  CumulativeBatchStatistics& operator=(const CumulativeBatchStatistics&) = delete;

 private:
  struct Norm {
    BatchNormBase* module;
    std::optional<double> momentum;  ///< to restore
    HookHandle hook;                 ///< sets the momentum of each call
  };

  std::unique_ptr<TrainingModes> modes_;
  std::vector<Norm> norms_;
};

/// Replaces the running statistics of all batch norms of `model` by the means over the batches of `loader`, a range of
/// tensors or of data::Batch: torch.optim.swa_utils.update_bn. Batches are moved to `device`, if given. The model runs
/// in training mode without recording for autograd; afterwards its mode is restored.
template <class Loader, class Model>
void update_bn(Loader&& loader, Model& model, std::optional<Device> device = std::nullopt) {
  const CumulativeBatchStatistics statistics(model);
  const NoGradGuard no_grad;
  for (auto&& batch : loader) {
    Tensor input;
    if constexpr (requires { batch.input; }) {
      input = batch.input;
    } else {
      input = batch;
    }
    model(device ? input.to(*device) : input);
  }
}

}}}  // namespace tandem::v0::nn
