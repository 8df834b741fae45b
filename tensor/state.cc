#include <tandem/tensor/state.h>

#include <algorithm>

namespace tandem { inline namespace v0 {

namespace {

/// The first name of a path, and the rest after the dot.
std::pair<std::string_view, std::string_view> split(std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {path, {}};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

void State::set(std::string_view path, Value value) {
  const auto [name, rest] = split(path);
  TANDEM_CHECK(StateError, !name.empty() && path.back() != '.', "State: '", path,
               "' is not a valid path: a name is empty");
  auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first == name; });
  if (name.size() == path.size()) {
    if (entry == entries_.end()) {
      entries_.emplace_back(name, std::move(value));
    } else {
      entry->second = std::move(value);
    }
    return;
  }
  if (entry == entries_.end()) {
    auto nested = std::make_shared<State>();
    nested->set(rest, std::move(value));  // before insertion, so that an invalid path changes nothing
    entries_.emplace_back(name, std::move(nested));
    return;
  }
  auto* nested = std::get_if<std::shared_ptr<State>>(&entry->second);
  TANDEM_CHECK(StateError, nested != nullptr, "State: '", name, "' is a value, not a nested state; '", path,
               "' cannot be set");
  (*nested)->set(rest, std::move(value));
}

const State::Value* State::find(std::string_view path) const {
  const auto [name, rest] = split(path);
  for (const auto& [key, value] : entries_) {
    if (key != name) continue;
    if (name.size() == path.size()) return &value;
    const auto* nested = std::get_if<std::shared_ptr<State>>(&value);
    return nested == nullptr ? nullptr : (*nested)->find(rest);
  }
  return nullptr;
}

std::vector<std::pair<std::string, Tensor>> State::tensors() const {
  std::vector<std::pair<std::string, Tensor>> result;
  for (const auto& [name, value] : entries_) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      result.emplace_back(name, *tensor);
    } else if (const auto* nested = std::get_if<std::shared_ptr<State>>(&value)) {
      for (auto& [path, below] : (*nested)->tensors()) result.emplace_back(name + "." + path, std::move(below));
    }
  }
  return result;
}

}}  // namespace tandem::v0
