// Parts of a model for DistributedDataParallel.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

std::vector<std::string> Module::units_of_parameters(std::vector<std::string> units) const {
  const auto is_list = [](const Module& module) {
    return module.element_class() != nullptr && dynamic_cast<const Layer*>(&module) == nullptr;
  };
  for (const std::string& unit : units) {
    TANDEM_CHECK(ValueError, !is_list(find_module("DistributedDataParallel: unit", unit)),
                 "DistributedDataParallel: unit '", unit,
                 "' is a list of modules, which is not called; name its modules");
  }
  const bool is_default = units.empty();
  const auto add_elements = [&](const auto& self, const std::string& path, const Module& list) -> void {
    for (const Child& child : list.children_) {
      const std::string element = path.empty() ? child.name : path + "." + child.name;
      if (is_list(*child.module)) {
        self(self, element, *child.module);  // is not called, but its modules are
      } else {
        units.push_back(element);
      }
    }
  };
  for (const auto& [path, module] : named_modules()) {
    if (is_default && is_list(*module) && module->numbers_children()) add_elements(add_elements, path, *module);
  }
  const auto innermost = [&](const std::vector<std::string>& paths) {
    std::string found;
    for (const std::string& unit : units) {
      const bool contains_all =
          std::ranges::all_of(paths, [&](const std::string& path) { return path.starts_with(unit + "."); });
      if (contains_all && unit.size() > found.size()) found = unit;
    }
    return found;
  };
  std::map<const TensorImpl*, std::vector<std::string>> paths;
  for (const auto& [path, module] : named_modules()) {
    for (const OwnTensor& own : module->parameters_) {
      if (own.tensor.defined()) paths[&own.tensor.impl()].push_back(path.empty() ? own.name : path + "." + own.name);
    }
  }
  std::vector<std::string> result;
  int64_t root = 0, all = 0;  // bytes
  for (const Tensor& parameter : parameters()) {
    result.push_back(innermost(paths.at(&parameter.impl())));
    if (!parameter.requires_grad()) continue;
    all += parameter.num_bytes();
    if (result.back().empty()) root += parameter.num_bytes();
  }
  if (2 * root > all && RankContext::current().rank == 0) {
    log(LogLevel::kWarning, "DistributedDataParallel with Shard::kParameters: the root unit has ", 100 * root / all,
        " % of the bytes of ", type_name(), ", which are gathered together; divide them by the option units (",
        is_default ? "by default, the modules of every nn::ModuleList are units)" : "now given)");
  }
  return result;
}

void Module::observe_calls(const std::string& path, RefPtr<ModuleObserver> observer) {
  const_cast<Module&>(find_module("observe_calls", path)).observer_ = std::move(observer);
}

}}}  // namespace tandem::v0::nn
