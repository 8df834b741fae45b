#include <tandem/tensor/state.h>

#include <algorithm>
#include <cstddef>

namespace tandem { inline namespace v0 {

namespace {

/// The first name of a path, and the rest after the dot.
std::pair<std::string_view, std::string_view> split(std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {path, {}};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

size_t State::search(std::string_view name) const {
  const auto is_before = [&](size_t position, std::string_view n) { return entries_[position].first < n; };
  return static_cast<size_t>(std::lower_bound(by_name_.begin(), by_name_.end(), name, is_before) - by_name_.begin());
}

size_t State::position(std::string_view name) const {
  const size_t at = search(name);
  const bool exists = at < by_name_.size() && entries_[by_name_[at]].first == name;
  return exists ? by_name_[at] : entries_.size();
}

void State::set(std::string_view path, Value value) {
  const auto [name, rest] = split(path);
  TANDEM_CHECK(StateError, !name.empty() && path.back() != '.', "State: '", path,
               "' is not a valid path: a name is empty");
  const auto* const state = std::get_if<std::shared_ptr<State>>(&value);
  TANDEM_CHECK(StateError, state == nullptr || *state != nullptr, "State: the state for '", path, "' is null");
  const size_t at = position(name);
  if (at == entries_.size()) {
    if (name.size() < path.size()) {
      auto nested = std::make_shared<State>();
      nested->set(rest, std::move(value));  // before insertion, so that an invalid path changes nothing
      value = std::move(nested);
    }
    const auto next = by_name_.begin() + static_cast<std::ptrdiff_t>(search(name));
    entries_.emplace_back(name, std::move(value));
    by_name_.insert(next, at);
    return;
  }
  if (name.size() == path.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  auto* nested = std::get_if<std::shared_ptr<State>>(&entries_[at].second);
  TANDEM_CHECK(StateError, nested != nullptr, "State: '", name, "' is a value, not a nested state; '", path,
               "' cannot be set");
  (*nested)->set(rest, std::move(value));
}

const State::Value* State::find(std::string_view path) const {
  const auto [name, rest] = split(path);
  const size_t at = position(name);
  if (at == entries_.size()) return nullptr;
  const Value& value = entries_[at].second;
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
