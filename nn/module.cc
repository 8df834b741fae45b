#include <tandem/nn/module.h>

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <string>
#include <typeinfo>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/base/log.h>
#include <tandem/base/type_name.h>
#include <tandem/nn/deferred_init.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/state_pieces.h>
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

/// The shard of a parameter that states have in pieces; null for others.
autograd::LeafShard* pieces_of(const Tensor& tensor) {
  const autograd::Leaf* const leaf = leaf_of(tensor);
  return leaf != nullptr && leaf->shard() != nullptr && leaf->shard()->is_in_pieces ? leaf->shard() : nullptr;
}

Tensor row_major(const Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  Tensor copy = empty(tensor.shape(), tensor.options());
  primitives::copy(tensor, copy);
  return copy;
}

template <class M>
void collect_modules(M& module, const std::string& path, std::vector<std::pair<std::string, M*>>& result) {
  result.emplace_back(path, &module);
  for (const auto& [name, child] : module.named_children()) collect_modules<M>(*child, joined(path, name), result);
}

/// The modules of a tree and their paths, parents before children.
template <class M>
std::vector<std::pair<std::string, M*>> all_modules(M& root) {
  std::vector<std::pair<std::string, M*>> result;
  collect_modules(root, "", result);
  return result;
}

template <class M>
std::vector<M*> without_names(const std::vector<std::pair<std::string, M*>>& named) {
  std::vector<M*> result;
  for (const auto& [name, module] : named) result.push_back(module);
  return result;
}

/// "'first', 'second'", or "none".
template <class Entries, class NameOf>
std::string listed(const Entries& entries, NameOf name_of) {
  std::string text;
  for (const auto& entry : entries) text += (text.empty() ? "'" : ", '") + name_of(entry) + "'";
  return text.empty() ? "none" : text;
}

/// "a.b.c" as "a.b" and "c".
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

std::string renamed(const std::string& key, const std::vector<KeyRename>& renames) {
  for (const auto& [from, to] : renames) {
    if (key.starts_with(from)) return to + key.substr(from.size());
  }
  return key;
}

/// Whether a value is a tensor that differs from `tensor` in a floating-point dtype only.
bool differs_in_floating_dtype(const State::Value* value, const Tensor& tensor) {
  const auto* const saved = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  return saved != nullptr && saved->defined() && saved->shape() == tensor.shape() && saved->dtype() != tensor.dtype() &&
         is_floating_point(saved->dtype()) && is_floating_point(tensor.dtype());
}

/// Whether two tensors of one shape, on any devices, have the same bits after conversion to `dtype`.
bool have_equal_values(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.data_ptr() == b.data_ptr() && a.dtype() == b.dtype() && a.strides() == b.strides()) return true;
  const Tensor a_copy = empty(a.shape(), {dtype});
  const Tensor b_copy = empty(b.shape(), {dtype});
  primitives::copy(a, a_copy);
  primitives::copy(b, b_copy);
  return primitives::bytes_equal(a_copy, b_copy);
}

}  // namespace

Module::Module(Module&& other) {
  TANDEM_CHECK(StateError, other.parent_ == nullptr, "move: ", other.scope_name()->text,
               " is a child, which cannot be moved; create a new module");
  other.check_not_frozen_below("move");
  parameters_ = std::move(other.parameters_);
  buffers_ = std::move(other.buffers_);
  children_ = std::move(other.children_);
  training_ = other.training_;
  for (const Child& child : children_) child.module->parent_ = this;
}

Module::~Module() {
  for (const Child& child : children_) {
    if (child.place) *child.place = nullptr;
  }
  delete scope_name_.load();
}

template <class F>
void Module::for_each_tensor(const std::string& prefix, F&& f, bool recurse) const {
  for (const auto* tensors : {&parameters_, &buffers_}) {
    for (const auto& [name, tensor, kind] : *tensors) {
      if (tensor.defined() && kind != Kind::kComputed) f(joined(prefix, name), tensor, kind);
    }
  }
  if (!recurse) return;
  for (const Child& child : children_) child.module->for_each_tensor(joined(prefix, child.name), f);
}

// --- building ------------------------------------------------------------------------------------------------------

void Module::check_new_name(const char* what, const std::string& name) const {
  check_not_frozen_above(what);
  TANDEM_CHECK(ValueError, !name.empty() && name.find('.') == std::string::npos, what, ": invalid name '", name,
               "', expected a non-empty text without '.'");
  const auto has_name = [&](const auto& entry) { return entry.name == name; };
  const bool taken = std::any_of(parameters_.begin(), parameters_.end(), has_name) ||
                     std::any_of(buffers_.begin(), buffers_.end(), has_name) ||
                     std::any_of(children_.begin(), children_.end(), has_name);
  TANDEM_CHECK(ValueError, !taken, what, ": ", scope_name()->text, " already contains '", name, "'");
}

void Module::check_class(const char* what, const std::string& name, const Module& child,
                         const ModuleClass& required) const {
  TANDEM_CHECK(ValueError, required.contains(child), what, ": '", name, "' of ", scope_name()->text, " must be a ",
               v0::type_name(*required.type), ", the new module is a ", child.type_name());
}

void Module::attach(Module& child, const std::string& name) {
  child.parent_ = this;
  child.name_ = name;
  child.forget_scope_names();
  // A parameter whose name is its path below the child gets its path below this module. A parameter with another name
  // is tied to a parameter of another module, and keeps that name.
  const std::string prefix = joined(path(), name);
  child.for_each_tensor("", [&](const std::string& below, const Tensor& tensor, Kind) {
    autograd::Leaf* leaf = leaf_of(tensor);
    if (leaf != nullptr && leaf->name == below) leaf->name = joined(prefix, below);
  });
}

void Module::detach(Module& child) {
  const std::string prefix = child.path();
  child.for_each_tensor("", [&](const std::string& below, const Tensor& tensor, Kind) {
    autograd::Leaf* leaf = leaf_of(tensor);
    if (leaf != nullptr && leaf->name == joined(prefix, below)) leaf->name = below;
  });
  child.parent_ = nullptr;
  child.name_.clear();
  child.forget_scope_names();
}

void Module::insert_child(size_t position, std::string name, std::unique_ptr<Module> child) {
  check_new_name("add", name);
  TANDEM_CHECK(ValueError, child != nullptr, "add: the module '", name, "' is null");
  if (const ModuleClass* type = element_class()) check_class("add", name, *child, *type);
  attach(*child, name);
  children_.insert(children_.begin() + static_cast<std::ptrdiff_t>(position), {std::move(name), std::move(child)});
}

std::shared_ptr<Module*> Module::insert_replaceable(std::string name, std::unique_ptr<Module> child,
                                                    const ModuleClass& type) {
  insert_child(children_.size(), std::move(name), std::move(child));
  Child& added = children_.back();
  added.required = &type;
  added.place = std::make_shared<Module*>(added.module.get());
  return added.place;
}

void Module::rename_child(size_t position, std::string name) {
  Child& child = children_[position];
  detach(*child.module);
  child.name = std::move(name);
  attach(*child.module, child.name);
}

void Module::renumber(size_t first, int64_t shift) {
  for (size_t i = first; i < children_.size(); ++i) {
    if (children_[i].name == std::to_string(static_cast<int64_t>(i) - shift)) rename_child(i, std::to_string(i));
  }
}

Module::Child& Module::find_replaceable(const char* what, const std::string& path, Module** parent,
                                        const Module* replacement) {
  const auto [above, name] = split_path(path);
  *parent = &const_cast<Module&>(find_module(what, above));
  find_module(what, path);  // throws if it does not exist
  TANDEM_CHECK(ValueError, !path.empty(), what, ": the path is empty, expected the path of a module below ",
               scope_name()->text);
  Child& child = *std::find_if((*parent)->children_.begin(), (*parent)->children_.end(),
                               [&, &wanted = name](const Child& entry) { return entry.name == wanted; });
  (*parent)->check_not_frozen_above(what);
  child.module->check_not_frozen_below(what);
  const ModuleClass* const required = child.required != nullptr ? child.required : (*parent)->element_class();
  TANDEM_CHECK(StateError, required != nullptr, what, ": ", (*parent)->scope_name()->text, " refers to its module '",
               name, "' by a C++ reference, which would dangle; make it a Replaceable<", child.module->type_name(),
               "> by add_replaceable()");
  if (replacement != nullptr) (*parent)->check_class(what, name, *replacement, *required);
  return child;
}

std::unique_ptr<Module> Module::replace_module(const std::string& path, std::unique_ptr<Module> module) {
  Module* parent = nullptr;
  TANDEM_CHECK(ValueError, module != nullptr, "replace_module: the new module '", path, "' is null");
  Child& child = find_replaceable("replace_module", path, &parent, module.get());
  detach(*child.module);
  parent->attach(*module, child.name);
  if (child.place) *child.place = module.get();
  return std::exchange(child.module, std::move(module));
}

std::unique_ptr<Module> Module::remove_module(const std::string& path) {
  Module* parent = nullptr;
  Child& child = find_replaceable("remove_module", path, &parent, nullptr);
  detach(*child.module);
  if (child.place) *child.place = nullptr;
  std::unique_ptr<Module> removed = std::move(child.module);
  const std::ptrdiff_t position = &child - parent->children_.data();
  parent->children_.erase(parent->children_.begin() + position);
  if (parent->numbers_children()) parent->renumber(static_cast<size_t>(position), -1);
  return removed;
}

void Module::make_parameter(const std::string& name, Tensor& tensor) {
  tensor.requires_grad_();
  std::string& known = autograd::leaf(tensor).name;
  if (known.empty()) known = joined(path(), name);
}

Tensor& Module::add_parameter(std::string name, Tensor value) {
  check_new_name("add_parameter", name);
  if (value.defined()) {
    TANDEM_CHECK(StateError, value.is_leaf(), "add_parameter: '", name, "' is the result of an operation (",
                 describe(value), "), expected a leaf; use detach()");
    TANDEM_CHECK(StateError, value.is_contiguous(), "add_parameter: '", name, "' is not contiguous (", describe(value),
                 "); use contiguous()");
    const autograd::Leaf* const leaf = leaf_of(value);  // has a name if the tensor is a parameter already
    const bool is_new =
        value.impl().use_count() == 1 && value.storage()->use_count() == 1 && (leaf == nullptr || leaf->name.empty());
    make_parameter(name, value);
    if (RankContext::current().defer_init && value.dim() > 1 && is_new) defer_memory(joined(path(), name), value);
  }
  return parameters_.emplace_back(OwnTensor{std::move(name), std::move(value), Kind::kParameter}).tensor;
}

Tensor& Module::add_buffer(std::string name, Tensor value, BufferOptions options) {
  check_new_name("add_buffer", name);
  TANDEM_CHECK(StateError, !value.defined() || !value.requires_grad(), "add_buffer: '", name,
               "' requires grad; use add_parameter() or detach()");
  const Kind kind = options.persistent ? Kind::kBuffer : Kind::kNonPersistentBuffer;
  return buffers_.emplace_back(OwnTensor{std::move(name), std::move(value), kind}).tensor;
}

// --- contents ------------------------------------------------------------------------------------------------------

std::vector<Module::NamedTensor> Module::distinct_tensors(bool is_parameter, bool recurse) const {
  std::vector<NamedTensor> result;
  std::set<const TensorImpl*> seen;
  const auto take = [&](const std::string& path, const Tensor& tensor, Kind kind) {
    if ((kind == Kind::kParameter) == is_parameter && seen.insert(&tensor.impl()).second)
      result.emplace_back(path, tensor);
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

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [path, tensor] : named_parameters()) result.push_back(std::move(tensor));
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::named_children() {
  std::vector<std::pair<std::string, Module*>> result;
  for (const Child& child : children_) result.emplace_back(child.name, child.module.get());
  return result;
}

std::vector<std::pair<std::string, const Module*>> Module::named_children() const {
  std::vector<std::pair<std::string, const Module*>> result;
  for (const Child& child : children_) result.emplace_back(child.name, child.module.get());
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() { return all_modules(*this); }
std::vector<std::pair<std::string, const Module*>> Module::named_modules() const { return all_modules(*this); }
std::vector<Module*> Module::children() { return without_names(named_children()); }
std::vector<const Module*> Module::children() const { return without_names(named_children()); }
std::vector<Module*> Module::modules() { return without_names(named_modules()); }
std::vector<const Module*> Module::modules() const { return without_names(named_modules()); }

void Module::visit(FunctionRef<void(Module&)> f) {
  for (Module* child : children()) child->visit(f);
  f(*this);
}

const Module& Module::find_module(const char* what, const std::string& path) const {
  const Module* module = this;
  for (size_t begin = 0; !path.empty() && begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const auto& children = module->children_;
    const auto found =
        std::find_if(children.begin(), children.end(), [&](const Child& child) { return child.name == name; });
    TANDEM_CHECK(ValueError, found != children.end(), what, ": ", module->scope_name()->text, " has no module '", name,
                 "', its modules are ", listed(children, [](const Child& child) { return child.name; }));
    module = found->module.get();
    begin = end + 1;
  }
  return *module;
}

const Tensor& Module::find_tensor(const char* what, const char* noun, std::deque<OwnTensor> Module::*list,
                                  const std::string& path) const {
  const auto [above, name] = split_path(path);
  const Module& owner = find_module(what, above);
  std::vector<const OwnTensor*> existing;
  for (const OwnTensor& entry : owner.*list) {
    if (!entry.tensor.defined() || entry.kind == Kind::kComputed) continue;
    if (entry.name == name) return entry.tensor;
    existing.push_back(&entry);
  }
  throw ValueError(str(what, ": ", owner.scope_name()->text, " has no ", noun, " '", name, "', its ", noun, "s are ",
                       listed(existing, [](const OwnTensor* entry) { return entry->name; })));
}

Tensor Module::get_parameter(const std::string& path) const {
  return find_tensor("get_parameter", "parameter", &Module::parameters_, path);
}

Tensor Module::get_buffer(const std::string& path) const {
  return find_tensor("get_buffer", "buffer", &Module::buffers_, path);
}

void Module::throw_wrong_class(const char* what, const Module& found, const std::type_info& expected) {
  throw ValueError(str(what, ": ", found.scope_name()->text, " is not a ", v0::type_name(expected)));
}

State Module::state_dict() const {
  State state;
  for_each_tensor("", [&](const std::string& path, const Tensor& tensor, Kind kind) {
    if (kind == Kind::kNonPersistentBuffer) return;
    if (const autograd::LeafShard* const shard = pieces_of(tensor)) {
      state.set(path, make_pieces(tensor.shape(), shard->begin, shard->values));
    } else {
      state.set(path, tensor.detach());
    }
  });
  return state;
}

LoadReport Module::load_state_dict(const State& state, const LoadStateDictOptions& options) {
  StateReader reader(state);
  return load(reader, options);
}

LoadReport Module::load_state_dict(const std::vector<std::pair<std::string, Tensor>>& tensors,
                                   const LoadStateDictOptions& options) {
  StateReader reader(tensors);
  return load(reader, options);
}

LoadReport Module::load(StateReader& reader, const LoadStateDictOptions& options) {
  if (!options.renames.empty()) reader.rename([&](const std::string& key) { return renamed(key, options.renames); });
  std::vector<NamedTensor> mine;
  std::set<const TensorImpl*> given;
  for_each_tensor("", [&](const std::string& path, const Tensor& tensor, Kind kind) {
    if (kind == Kind::kNonPersistentBuffer) return;
    mine.emplace_back(path, tensor);
    if (reader.has(path)) given.insert(&tensor.impl());
  });
  LoadReport report;
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  struct Elements {
    Tensor parameter, to;      // elements of the parameter
    std::vector<Tensor> from;  // consecutive elements
  };
  std::vector<Elements> elements;                 // of parameters in pieces, here or in the state
  std::map<const TensorImpl*, NamedTensor> used;  // path and value of each tensor that is loaded
  bool is_dtype_only = false;                     // a mismatch that convert_dtype would remove
  for (const auto& [path, tensor] : mine) {
    if (!reader.has(path)) {
      if (given.contains(&tensor.impl())) {  // a tied tensor, contained under another of its paths
        report.loaded_keys.push_back(path);
        continue;
      }
      report.missing_keys.push_back(path);
      if (!options.strict) continue;
    }
    const autograd::LeafShard* const shard = pieces_of(tensor);
    const int64_t begin = shard ? shard->begin : 0, end = shard ? shard->end : tensor.numel();
    const auto own = [&, &parameter = tensor] { return shard ? shard->values : view_elements(parameter, begin, end); };
    if (reader.find(path) == nullptr) {
      elements.push_back({tensor, own(), reader.read_elements(path, tensor.shape(), tensor.dtype(), begin, end)});
      report.loaded_keys.push_back(path);
      continue;
    }
    const Tensor* const saved = reader.read_tensor(path, tensor, options.convert_dtype);
    if (saved == nullptr) {
      is_dtype_only = is_dtype_only || differs_in_floating_dtype(reader.find(path), tensor);
      continue;
    }
    report.loaded_keys.push_back(path);
    if (saved->dtype() != tensor.dtype()) report.converted_keys.push_back(path);
    const auto [first, is_new] = used.try_emplace(&tensor.impl(), path, *saved);
    if (is_new && shard != nullptr) {
      elements.push_back({tensor, own(), {view_elements(row_major(*saved), begin, end)}});
    } else if (is_new) {
      copies.emplace_back(tensor, *saved);
    } else if (!have_equal_values(first->second.second, *saved, tensor.dtype())) {
      reader.refuse(path, "tied to '" + first->second.first + "', which has other values in the state");
    }
  }
  report.unexpected_keys = reader.unread();
  reader.finish(str("load_state_dict: the state does not fit ", scope_name()->text,
                    is_dtype_only ? " (convert_dtype = true converts floating-point tensors)" : ""),
                options.strict);
  for (const auto& [parameter, to, from] : elements) {  // before a change
    if (pieces_of(parameter) != nullptr) leaf_of(parameter)->shard()->group->exchange({});
  }
  for (const auto& [to, from] : copies) {
    const void* const source = from.data_ptr();  // first: the module's own state_dict may be deferred
    allocate_deferred(to);
    if (to.data_ptr() == source && to.strides() == from.strides()) continue;  // the module's own state_dict
    primitives::copy(from, to);
    autograd::end_in_place("load_state_dict", to);
  }
  for (const auto& [parameter, to, from] : elements) {
    allocate_deferred(parameter);
    copy_elements(from, to);
    autograd::end_in_place("load_state_dict", parameter);
    const autograd::Leaf* const leaf = leaf_of(parameter);
    if (pieces_of(parameter) != nullptr) leaf->shard()->group->exchange({leaf});
  }
  return report;
}

// --- device, mode and gradients ------------------------------------------------------------------------------------

void Module::convert(std::optional<Device> device, std::optional<DType> dtype) {
  TANDEM_CHECK(DTypeError, !dtype || is_floating_point(*dtype), "to: dtype is ", *dtype,
               ", expected a floating-point dtype");
  check_not_frozen_above("to");
  check_not_frozen_below("to");
  std::vector<std::pair<Tensor, Tensor>> moves;  // (tensor, its copy)
  std::set<const TensorImpl*> seen;
  for_each_tensor("", [&](const std::string& path, const Tensor& tensor, Kind) {
    const bool converts = dtype && is_floating_point(tensor.dtype());
    const TensorOptions target = {converts ? *dtype : tensor.dtype(), device.value_or(tensor.device())};
    if ((tensor.dtype() == target.dtype && tensor.device() == target.device) || !seen.insert(&tensor.impl()).second)
      return;
    const autograd::Leaf* leaf = leaf_of(tensor);
    TANDEM_CHECK(StateError, leaf == nullptr || !leaf->has_foreign_slot(), "to: the gradient of '", path,
                 "' is stored in a DistributedDataParallel bucket");
    Tensor moved = convert_deferred(tensor, target);
    if (!moved.defined()) {
      moved = empty(tensor.shape(), target);
      primitives::copy(tensor, moved);
    }
    moves.emplace_back(tensor, std::move(moved));
  });
  for (const auto& [tensor, moved] : moves) {
    if (autograd::Leaf* leaf = leaf_of(tensor)) leaf->move_to(moved.device(), moved.dtype());
    take_memory(tensor, moved);
  }
}

Module& Module::requires_grad_(bool requires_grad) {
  for (Tensor& parameter : parameters()) parameter.requires_grad_(requires_grad);
  return *this;
}

void Module::train(bool on) {
  training_ = on;
  for (const Child& child : children_) child.module->train(on);
}

void Module::zero_grad() const {
  for_each_tensor("", [](const std::string&, const Tensor& tensor, Kind) { tensor.zero_grad(); });
}

struct Module::Freezes {
  std::list<std::string> reasons;
};

HookHandle Module::freeze_structure(std::string reason) {
  if (!freezes_) freezes_ = std::make_shared<Freezes>();
  freezes_->reasons.push_back(std::move(reason));
  return HookHandle([held = std::weak_ptr(freezes_), position = std::prev(freezes_->reasons.end())] {
    if (const auto freezes = held.lock()) freezes->reasons.erase(position);
  });
}

void Module::throw_frozen(const char* what, const Module& frozen) const {
  throw StateError(str(what, ": the structure of ", frozen.scope_name()->text, " is fixed while ",
                       frozen.freezes_->reasons.front()));
}

void Module::check_not_frozen_above(const char* what) const {
  for (const Module* module = this; module != nullptr; module = module->parent_) {
    if (module->freezes_ && !module->freezes_->reasons.empty()) throw_frozen(what, *module);
  }
}

void Module::check_not_frozen_below(const char* what) const {
  if (freezes_ && !freezes_->reasons.empty()) throw_frozen(what, *this);
  for (const Child& child : children_) child.module->check_not_frozen_below(what);
}

// --- names ---------------------------------------------------------------------------------------------------------

std::string Module::path() const { return parent_ == nullptr ? "" : joined(parent_->path(), name_); }

std::string Module::type_name() const { return v0::type_name(typeid(*this)); }

RefPtr<ScopeName> Module::make_scope_name() const {
  const RankContext& context = RankContext::current();
  if (parent_ == nullptr && context.module_scope && context.grad_enabled &&
      std::ranges::any_of(parameters(), &Tensor::requires_grad)) {
    log(LogLevel::kWarning, type_name(), " is called in ", context.module_scope->text,
        ", which does not own it, so that ", "optimizers, to() and state_dict() omit its parameters: create it by add<",
        type_name(), ">(..)");
  }
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
