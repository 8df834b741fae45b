#include <tandem/nn/clone.h>

#include <map>
#include <set>
#include <string>

#include <tandem/autograd/leaf.h>
#include <tandem/ops/move.h>

namespace tandem { inline namespace v0 { namespace nn {

void copy_state(const Module& from, Module& to) {
  if (&from == &to) return;
  to.check_not_frozen_above("copy_state");
  to.check_not_frozen_below("copy_state");
  std::vector<std::pair<const Module*, Module*>> modules;
  struct TensorPair {
    const Module::OwnTensor& from;
    Module::OwnTensor& to;
    Module& owner;
  };
  std::vector<TensorPair> tensors;
  std::string differences;
  // "Linear(weight, bias)": the class, own tensors and children.
  const auto structure = [](const Module& module) {
    std::string names;
    const auto append = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
    for (const auto* list : {&module.parameters_, &module.buffers_}) {
      for (const auto& [name, tensor, kind] : *list)
        append(name + (kind == Module::Kind::kComputed              ? " (computed)"
                       : kind == Module::Kind::kNonPersistentBuffer ? " (not persistent)"
                                                                    : ""));
    }
    for (const Module::Child& child : module.children_) append(child.name);
    return module.type_name() + "(" + names + ")";
  };
  const auto pair_up = [&](const auto& self, const Module& a, Module& b) -> void {
    if (typeid(a) != typeid(b) || structure(a) != structure(b)) {
      differences += "\n  " + a.scope_name()->text + ": " + structure(a) + ", and in the new module " + structure(b);
      return;
    }
    modules.emplace_back(&a, &b);
    for (auto list : {&Module::parameters_, &Module::buffers_}) {
      for (size_t i = 0; i < (a.*list).size(); ++i) tensors.push_back({(a.*list)[i], (b.*list)[i], b});
    }
    for (size_t i = 0; i < a.children_.size(); ++i) self(self, *a.children_[i].module, *b.children_[i].module);
  };
  pair_up(pair_up, from, to);
  TANDEM_CHECK(StateError, differences.empty(), "copy_state: the modules have different structures", differences);

  std::map<const TensorImpl*, Tensor> values;  // copies of the tensors of `from`, all made before `to` changes
  for (const auto& [a, b, owner] : tensors) {
    if (a.tensor.defined()) values.try_emplace(&a.tensor.impl(), a.tensor.detach().clone());
  }
  std::map<const TensorImpl*, Tensor> copies;  // by tensor of `from`
  std::set<const TensorImpl*> used;            // tensors of `to` that became copies
  for (const auto& [a, b, owner] : tensors) {
    if (!a.tensor.defined()) {
      b.tensor = Tensor();
      continue;
    }
    const TensorImpl* const source = &a.tensor.impl();
    if (const auto copy = copies.find(source); copy != copies.end()) {
      b.tensor = copy->second;  // tied
      continue;
    }
    if (b.tensor.defined() && b.tensor.is_leaf() && used.insert(&b.tensor.impl()).second) {
      b.tensor.requires_grad_(false);
      b.tensor.impl().autograd = nullptr;  // the leaf state has the old shape, dtype and device
      take_memory(b.tensor, values.at(source));
    } else {
      b.tensor = values.at(source);
    }
    if (a.kind == Module::Kind::kParameter) {
      owner.make_parameter(b.name, b.tensor);
      b.tensor.requires_grad_(a.tensor.requires_grad());
    }
    copies.emplace(source, b.tensor);
  }
  for (const auto& [a, b] : modules) b->training_ = a->training_;
}

}}}  // namespace tandem::v0::nn
