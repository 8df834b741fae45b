#include <tandem/nn/deferred_init.h>

#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

class DeferredMemory final : public StorageOwner {
 public:
  DeferredMemory(std::string name, const Shape& shape, DType dtype)
      : name_(std::move(name)), shape_(shape), dtype_(dtype) {}

  void on_access(Storage& storage) override {
    TANDEM_CHECK(StateError, initialize_ != nullptr, "DeferGuard: '", name_,
                 "' has no initial value; set it by a function of nn::init, or create the module without DeferGuard");
    const RefPtr<Storage> memory = Storage::allocate(storage.device(), storage.num_bytes());
    Generator generator = generator_;  // if the initialization throws, the next use draws the same numbers
    const NoGradGuard no_grad;
    initialize_(make_view(memory, dtype_, shape_, row_major_strides(shape_), 0), &generator);
    storage.provide(memory, 0);
    storage.remove_owner();  // may delete this
  }
  void set(Initializer initialize, Generator generator) {
    initialize_ = std::move(initialize);
    generator_ = std::move(generator);
  }
  /// The memory of a tensor on `device`, to be initialized there and then converted to `target`.
  RefPtr<DeferredMemory> converted(Device device, DType target) const {
    RefPtr<DeferredMemory> result(new DeferredMemory(name_, shape_, target));
    if (initialize_ == nullptr) return result;
    const auto initialize = [before = initialize_, options = TensorOptions{dtype_, device}](const Tensor& tensor,
                                                                                            Generator* generator) {
      const Tensor original = empty(tensor.shape(), options);
      before(original, generator);
      primitives::copy(original, tensor);
    };
    result->set(initialize, generator_);
    return result;
  }

 private:
  const std::string name_;
  const Shape shape_;
  const DType dtype_;
  Initializer initialize_;
  Generator generator_;  ///< at the position of the recorded call
};

/// Null unless `tensor` is deferred.
DeferredMemory* deferred(const Tensor& tensor) {
  return dynamic_cast<DeferredMemory*>(tensor.storage()->owner().get());
}

/// A row-major tensor whose memory `owner` provides.
Tensor provided(const Shape& shape, const TensorOptions& options, RefPtr<DeferredMemory> owner) {
  const auto storage = Storage::provided(options.device, num_elements(shape) * size_of(options.dtype), owner);
  return make_view(storage, options.dtype, shape, row_major_strides(shape), 0);
}

}  // namespace

void defer_memory(const std::string& name, const Tensor& parameter) {
  RefPtr<DeferredMemory> owner(new DeferredMemory(name, parameter.shape(), parameter.dtype()));
  take_memory(parameter, provided(parameter.shape(), parameter.options(), std::move(owner)));
}

bool defer_init(const Tensor& tensor, Generator* generator, const Initializer& initialize) {
  DeferredMemory* const memory = deferred(tensor);
  if (memory == nullptr) return false;
  Generator position;  // initial values are those of rank 0
  if (generator != nullptr) {
    position = *generator;
  } else {
    position.load_state_dict(default_generator(rank_device()).state_dict());
  }
  memory->set(initialize, std::move(position));
  initialize(empty(tensor.shape(), tensor.options()), generator);
  return true;
}

void allocate_deferred(const Tensor& tensor) {
  if (deferred(tensor) == nullptr) return;
  Storage& storage = *tensor.storage();
  storage.provide(Storage::allocate(storage.device(), storage.num_bytes()), 0);
  storage.remove_owner();
}

Tensor convert_deferred(const Tensor& tensor, const TensorOptions& options) {
  const DeferredMemory* const memory = deferred(tensor);
  if (memory == nullptr) return {};
  return provided(tensor.shape(), options, memory->converted(tensor.device(), options.dtype));
}

}}}  // namespace tandem::v0::nn
