#include <tandem/nn/module.h>

#include <algorithm>
#include <set>
#include <typeinfo>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/base/type_name.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

/// The leaf state of a tensor, or null; the tensor need not require grad at present.
autograd::Leaf* leaf_of(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  return impl.has_node ? nullptr : static_cast<autograd::Leaf*>(impl.autograd.get());
}

}  // namespace

Module::~Module() { delete scope_name_.load(); }

template <class F>
void Module::for_each_tensor(const std::string& prefix, F&& f, bool recurse) const {
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.defined()) f(joined(prefix, name), tensor, true);
  }
  for (const auto& [name, tensor] : buffers_) {
    if (tensor.defined()) f(joined(prefix, name), tensor, false);
  }
  if (!recurse) return;
  for (const Child& child : children_) child.module->for_each_tensor(joined(prefix, child.name), f);
}

// --- building ------------------------------------------------------------------------------------------------------

void Module::check_new_name(const char* what, const std::string& name) const {
  check_not_frozen_above(what);
  TANDEM_CHECK(ValueError, !name.empty() && name.find('.') == std::string::npos, what, ": invalid name '", name,
               "', expected a non-empty text without '.'");
  const auto has_name = [&](const auto& entry) { return entry.first == name; };
  const bool taken =
      std::any_of(parameters_.begin(), parameters_.end(), has_name) ||
      std::any_of(buffers_.begin(), buffers_.end(), has_name) ||
      std::any_of(children_.begin(), children_.end(), [&](const Child& child) { return child.name == name; });
  TANDEM_CHECK(ValueError, !taken, what, ": ", scope_name()->text, " already contains '", name, "'");
}

void Module::insert_child(std::string name, std::unique_ptr<Module> child) {
  check_new_name("add", name);
  TANDEM_CHECK(ValueError, child != nullptr, "add: the module '", name, "' is null");
  child->parent_ = this;
  child->name_ = name;
  child->forget_scope_names();
  // A parameter whose name is its path below the child gets its path below this module. A parameter with another name
  // is tied to a parameter of another module, and keeps that name.
  const std::string prefix = joined(path(), name);
  child->for_each_tensor("", [&](const std::string& below, const Tensor& tensor, bool) {
    autograd::Leaf* leaf = leaf_of(tensor);
    if (leaf != nullptr && leaf->name == below) leaf->name = joined(prefix, below);
  });
  children_.push_back({std::move(name), std::move(child)});
}

Tensor& Module::add_parameter(std::string name, Tensor value) {
  check_new_name("add_parameter", name);
  if (value.defined()) {
    TANDEM_CHECK(StateError, value.is_leaf(), "add_parameter: '", name, "' is the result of an operation (",
                 describe(value), "), expected a leaf; use detach()");
    TANDEM_CHECK(StateError, value.is_contiguous(), "add_parameter: '", name, "' is not contiguous (", describe(value),
                 "); use contiguous()");
    value.set_requires_grad();
    std::string& known = autograd::leaf(value).name;
    if (known.empty()) known = joined(path(), name);
  }
  return parameters_.emplace_back(std::move(name), std::move(value)).second;
}

Tensor& Module::add_buffer(std::string name, Tensor value) {
  check_new_name("add_buffer", name);
  TANDEM_CHECK(StateError, !value.defined() || !value.requires_grad(), "add_buffer: '", name,
               "' requires grad; use add_parameter() or detach()");
  return buffers_.emplace_back(std::move(name), std::move(value)).second;
}

// --- contents ------------------------------------------------------------------------------------------------------

std::vector<Module::NamedTensor> Module::distinct_tensors(bool is_parameter, bool recurse) const {
  std::vector<NamedTensor> result;
  std::set<const TensorImpl*> seen;
  const auto take = [&](const std::string& path, const Tensor& tensor, bool kind) {
    if (kind == is_parameter && seen.insert(&tensor.impl()).second) result.emplace_back(path, tensor);
  };
  for_each_tensor("", take, recurse);
  return result;
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters(bool recurse) const {
  return distinct_tensors(true, recurse);
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers(bool recurse) const {
  return distinct_tensors(false, recurse);
}

std::vector<std::pair<std::string, const Module*>> Module::named_children() const {
  std::vector<std::pair<std::string, const Module*>> result;
  for (const Child& child : children_) result.emplace_back(child.name, child.module.get());
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [path, tensor] : named_parameters()) result.push_back(std::move(tensor));
  return result;
}

State Module::state_dict() const {
  State state;
  for_each_tensor("", [&](const std::string& path, const Tensor& tensor, bool) { state.set(path, tensor.detach()); });
  return state;
}

void Module::load_state_dict(const State& state) {
  StateReader reader(state);
  std::set<const TensorImpl*> given;
  for_each_tensor("", [&](const std::string& path, const Tensor& mine, bool) {
    if (reader.has(path)) given.insert(&mine.impl());
  });
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  for_each_tensor("", [&](const std::string& path, const Tensor& mine, bool) {
    if (!reader.has(path) && given.contains(&mine.impl()))
      return;  // a tied tensor, contained under another of its paths
    if (const Tensor* saved = reader.read_tensor(path, mine)) copies.emplace_back(mine, *saved);
  });
  reader.finish("load_state_dict: the state does not fit " + scope_name()->text);
  for (const auto& [to, from] : copies) {
    if (to.data_ptr() == from.data_ptr() && to.strides() == from.strides()) continue;  // the module's own state_dict
    primitives::copy(from, to);
    autograd::end_in_place("load_state_dict", to);
  }
}

// --- device, mode and gradients ------------------------------------------------------------------------------------

void Module::to(Device device) {
  check_not_frozen_above("to");
  check_not_frozen_below("to");
  std::vector<std::pair<Tensor, Tensor>> moves;  // (tensor, its copy on the device)
  std::set<const TensorImpl*> seen;
  for_each_tensor("", [&](const std::string& path, const Tensor& tensor, bool) {
    if (tensor.device() == device || !seen.insert(&tensor.impl()).second) return;
    const autograd::Leaf* leaf = leaf_of(tensor);
    TANDEM_CHECK(StateError, leaf == nullptr || !leaf->has_foreign_slot(), "to: the gradient of '", path,
                 "' is stored in a DistributedDataParallel bucket");
    Tensor moved = empty(tensor.shape(), {tensor.dtype(), device});
    primitives::copy(tensor, moved);
    moves.emplace_back(tensor, std::move(moved));
  });
  for (auto& [tensor, moved] : moves) {
    if (autograd::Leaf* leaf = leaf_of(tensor)) leaf->move_to(device);
    TensorImpl& impl = tensor.impl();
    impl.storage = moved.storage();
    impl.offset = 0;
    impl.strides = moved.strides();
    impl.is_row_major = true;
    impl.is_view = false;
    impl.history_version = impl.storage->version();
  }
}

void Module::train(bool on) {
  training_ = on;
  for (const Child& child : children_) child.module->train(on);
}

void Module::zero_grad() const {
  for_each_tensor("", [](const std::string&, const Tensor& tensor, bool) { tensor.zero_grad(); });
}

HookHandle Module::freeze_structure(std::string reason) {
  if (!freezes_) freezes_ = std::make_shared<std::list<std::string>>();
  freezes_->push_back(std::move(reason));
  return HookHandle([held = std::weak_ptr(freezes_), position = std::prev(freezes_->end())] {
    if (const auto freezes = held.lock()) freezes->erase(position);
  });
}

void Module::throw_frozen(const char* what, const Module& frozen) const {
  throw StateError(
      str(what, ": the structure of ", frozen.scope_name()->text, " is fixed while ", frozen.freezes_->front()));
}

void Module::check_not_frozen_above(const char* what) const {
  for (const Module* module = this; module != nullptr; module = module->parent_) {
    if (module->freezes_ && !module->freezes_->empty()) throw_frozen(what, *module);
  }
}

void Module::check_not_frozen_below(const char* what) const {
  if (freezes_ && !freezes_->empty()) throw_frozen(what, *this);
  for (const Child& child : children_) child.module->check_not_frozen_below(what);
}

// --- names ---------------------------------------------------------------------------------------------------------

std::string Module::path() const { return parent_ == nullptr ? "" : joined(parent_->path(), name_); }

std::string Module::type_name() const { return v0::type_name(typeid(*this)); }

RefPtr<ScopeName> Module::make_scope_name() const {
  const std::string where = path();
  auto made = std::make_unique<const RefPtr<ScopeName>>(
      make_ref<ScopeName>(where.empty() ? type_name() : type_name() + " '" + where + "'"));
  const RefPtr<ScopeName>* known = nullptr;
  // Concurrent threads may both reach this point; the first stored name is kept.
  if (scope_name_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

void Module::forget_scope_names() {
  delete scope_name_.exchange(nullptr);
  for (const Child& child : children_) child.module->forget_scope_names();
}

}}}  // namespace tandem::v0::nn
