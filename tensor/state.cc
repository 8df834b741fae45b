#include <tandem/tensor/state.h>

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
  const auto position = positions_.find(name);
  if (position == positions_.end()) {
    if (name.size() < path.size()) {
      auto nested = std::make_shared<State>();
      nested->set(rest, std::move(value));  // before insertion, so that an invalid path changes nothing
      value = std::move(nested);
    }
    entries_.emplace_back(name, std::move(value));
    positions_.emplace(name, entries_.size() - 1);
    return;
  }
  Value& present = entries_[position->second].second;
  if (name.size() == path.size()) {
    present = std::move(value);
    return;
  }
  auto* nested = std::get_if<std::shared_ptr<State>>(&present);
  TANDEM_CHECK(StateError, nested != nullptr, "State: '", name, "' is a value, not a nested state; '", path,
               "' cannot be set");
  (*nested)->set(rest, std::move(value));
}

const State::Value* State::find(std::string_view path) const {
  const auto [name, rest] = split(path);
  const auto position = positions_.find(name);
  if (position == positions_.end()) return nullptr;
  const Value& value = entries_[position->second].second;
  if (name.size() == path.size()) return &value;
  const auto* nested = std::get_if<std::shared_ptr<State>>(&value);
  return nested == nullptr ? nullptr : (*nested)->find(rest);
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
