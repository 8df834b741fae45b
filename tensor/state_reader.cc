#include <tandem/tensor/state_reader.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/state_pieces.h>

namespace tandem { inline namespace v0 {

namespace {

/// Collects all values of a state and its nested states by path.
void collect(const State& state, const std::string& prefix, std::map<std::string, const State::Value*>& out) {
  for (const auto& [name, value] : state.entries()) {
    if (const auto* nested = std::get_if<std::shared_ptr<State>>(&value)) {
      collect(**nested, prefix + name + ".", out);
    } else {
      out[prefix + name] = &value;
    }
  }
}

/// The kind of a value, for messages: "float32 [2, 3]", "an integer".
std::string kind_of(const State::Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value))
    return tensor->defined() ? str(tensor->dtype(), " ", tensor->shape()) : "an undefined tensor";
  constexpr std::array<const char*, 6> kNames = {"", "an integer", "a number", "a bool", "a string", ""};
  return kNames[value.index()];
}

Tensor row_major_copy(const Tensor& tensor) {
  Tensor copy = empty(tensor.shape(), {tensor.dtype(), tensor.device()});
  primitives::copy(tensor, copy);
  return copy;
}

}  // namespace

StateReader::StateReader(const State& state) { collect(state, "", values_); }

StateReader::StateReader(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  owned_.reserve(tensors.size());  // so that pointers to its elements stay valid
  for (const auto& [path, tensor] : tensors) insert(path, &owned_.emplace_back(tensor));
}

void StateReader::insert(const std::string& path, const State::Value* value) {
  if (!values_.emplace(path, value).second) problems_ += "\n  duplicate   " + path;
}

void StateReader::rename(FunctionRef<std::string(const std::string& path)> f) {
  for (const auto& [path, value] : std::exchange(values_, {})) insert(f(path), value);
}

const State::Value* StateReader::find(const std::string& path) const {
  const auto found = values_.find(path);
  return found == values_.end() ? nullptr : found->second;
}

bool StateReader::has(const std::string& path) const {
  const auto at = values_.lower_bound(path);
  if (at != values_.end() && at->first == path) return true;
  const auto below = values_.lower_bound(path + ".");
  return below != values_.end() && below->first.starts_with(path + ".");
}

const State::Value* StateReader::take(const std::string& path) {
  const State::Value* value = find(path);
  if (value == nullptr) {
    problems_ += "\n  missing     " + path;
    return nullptr;
  }
  asked_[path] = true;
  return value;
}

template <class T>
const T* StateReader::read(const std::string& path) {
  const State::Value* value = take(path);
  if (value == nullptr) return nullptr;
  const T* typed = std::get_if<T>(value);
  if (typed == nullptr) refuse(path, kind_of(T()) + " expected, " + kind_of(*value) + " in the state");
  return typed;
}

template const int64_t* StateReader::read(const std::string&);
template const double* StateReader::read(const std::string&);
template const bool* StateReader::read(const std::string&);
template const std::string* StateReader::read(const std::string&);

const Tensor* StateReader::read_tensor(const std::string& path, const Tensor& like, bool any_floating_dtype) {
  return read_tensor(path, like.shape(), like.dtype(), any_floating_dtype);
}

const Tensor* StateReader::read_tensor(const std::string& path, const Shape& shape, DType dtype,
                                       bool any_floating_dtype) {
  const State::Value* value = take(path);
  if (value == nullptr) return nullptr;
  const auto fits = [&](DType own) {
    return own == dtype || (any_floating_dtype && is_floating_point(own) && is_floating_point(dtype));
  };
  const auto* tensor = std::get_if<Tensor>(value);
  if (tensor != nullptr && tensor->defined() && tensor->shape() == shape && fits(tensor->dtype())) return tensor;
  refuse(path, str(dtype, " ", shape, " expected, ", kind_of(*value), " in the state"));
  return nullptr;
}

std::vector<Tensor> StateReader::read_elements(const std::string& path, const Shape& shape, DType dtype, int64_t begin,
                                               int64_t end) {
  const std::string full_shape = str(path, ".", kFullShape);
  if (find(full_shape) == nullptr) {
    const Tensor* whole = read_tensor(path, shape, dtype, false);
    if (whole == nullptr || begin == end) return {};
    return {view_elements(whole->is_contiguous() ? *whole : row_major_copy(*whole), begin, end)};
  }
  const auto* text = read<std::string>(full_shape);
  bool fits = text != nullptr;
  if (fits && *text != to_string(shape)) {
    refuse(path, str(shape, " expected, pieces of ", *text, " in the state"));
    fits = false;
  }
  std::vector<Piece> pieces;
  for (auto at = values_.lower_bound(path + ".["); at != values_.end() && at->first.starts_with(path + ".["); ++at) {
    std::optional<Piece> piece = to_piece(at->first.substr(path.size() + 1), *at->second);
    if (!piece) continue;  // unexpected
    asked_[at->first] = true;
    if (piece->elements.dtype() != dtype) {
      refuse(at->first, str(dtype, " expected, ", piece->elements.dtype(), " in the state"));
      fits = false;
    }
    pieces.push_back(std::move(*piece));
  }
  if (!fits) return {};
  if (const std::string problem = sort_pieces(pieces, begin, end); !problem.empty()) {
    refuse(path, problem);
    return {};
  }
  std::vector<Tensor> result;
  for (const Piece& piece : pieces) {
    const int64_t from = std::max(piece.begin, begin);
    const int64_t to = std::min(piece.end, end);
    if (from < to) result.push_back(view_elements(piece.elements, from - piece.begin, to - piece.begin));
  }
  return result;
}

void StateReader::refuse(const std::string& path, const std::string& why) {
  problems_ += "\n  different   " + path + ": " + why;
}

std::vector<std::string> StateReader::unread() const {
  std::vector<std::string> result;
  for (const auto& [path, value] : values_) {
    if (!asked_.contains(path)) result.push_back(path);
  }
  return result;
}

void StateReader::finish(const std::string& heading, bool strict) {
  if (strict) {
    for (const std::string& path : unread()) problems_ += "\n  unexpected  " + path;
  }
  TANDEM_CHECK(StateError, problems_.empty(), heading, problems_);
}

}}  // namespace tandem::v0
