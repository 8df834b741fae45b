// A dictionary of modules.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/nn/module_container.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Modules of type T by name, in the order in which they were inserted. The code of the model calls them:
///
///     nn::ModuleDict<>& heads = add<nn::ModuleDict<>>("heads");
///     heads.insert<nn::Linear>("depth", 512, 1);
///     ...
///     heads["depth"](features)
///
/// Iteration is over pointers to the modules. All functions that take the key of an existing module throw ValueError if
/// no module has this key.
template <class T = Layer>
class ModuleDict : public ModuleContainer<Module, T> {
 public:
  /// Inserts a module U(args...). Throws ValueError if the key exists, is empty or contains a '.'.
  template <class U = T, class... Args>
  U& insert(std::string key, Args&&... args) {
    return insert(std::move(key), std::make_unique<U>(std::forward<Args>(args)...));
  }
  /// Inserts a module, as Module::add_module.
  template <class M>
  auto& insert(std::string key, M&& module) {
    return this->add_module(std::move(key), std::forward<M>(module));
  }
  T& operator[](const std::string& key) { return this->template get_submodule<T>(key); }  ///< the module of a key
  bool contains(const std::string& key) const {                                           ///< whether the key exists
    for (const std::string& name : keys()) {
      if (name == key) return true;
    }
    return false;
  }
  std::vector<std::string> keys() const {  ///< in the order of insertion
    std::vector<std::string> result;
    for (const auto& [name, module] : this->named_children()) result.push_back(name);
    return result;
  }
  /// (key, module) in the order of insertion.
  std::vector<std::pair<std::string, T*>> items() const {
    std::vector<std::pair<std::string, T*>> result;
    for (size_t i = 0; i < static_cast<size_t>(this->size()); ++i)
      result.emplace_back(this->child_name(i), this->child(i));
    return result;
  }
  /// Replaces a module and returns the old one. References to the old module stay valid as long as the result.
  template <class M>
  std::unique_ptr<Module> replace(const std::string& key, M&& module) {
    return this->replace_module(key, this->make_child(std::forward<M>(module)));
  }
  /// Removes a module and returns it.
  std::unique_ptr<Module> pop(const std::string& key) { return this->remove_module(key); }
};

}}}  // namespace tandem::v0::nn
