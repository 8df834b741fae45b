#include <tandem/nn/deferred_init.h>

#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

class DeferredMemory final : public StorageOwner {
 public:
  DeferredMemory(std::string name, const Tensor& parameter)
      : name_(std::move(name)), shape_(parameter.shape()), dtype_(parameter.dtype()) {}

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

}  // namespace

void defer_memory(const std::string& name, const Tensor& parameter) {
  const auto storage = Storage::provided(parameter.device(), parameter.num_bytes(),
                                         RefPtr<StorageOwner>(new DeferredMemory(name, parameter)));
  take_memory(parameter, make_view(storage, parameter.dtype(), parameter.shape(), parameter.strides(), 0));
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

}}}  // namespace tandem::v0::nn
