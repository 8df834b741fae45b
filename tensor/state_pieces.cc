#include <tandem/tensor/state_pieces.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 {

namespace {

/// The decimal numbers in a text, without signs. Numbers that do not fit are wrong.
std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    uint64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    const bool is_number = parsed.ec != std::errc::invalid_argument;
    if (is_number) numbers.push_back(static_cast<int64_t>(number));
    at = is_number ? parsed.ptr : at + 1;
  }
  return numbers;
}

std::string name_of(const Piece& piece) { return str("[", piece.begin, ":", piece.end, "]"); }

std::string describe(const Piece& piece) {
  return piece.rank < 0 ? name_of(piece) : str(name_of(piece), " of rank ", piece.rank);
}

/// A state's tensors in pieces by path.
std::map<std::string, const State*> collect(const State& state, const std::string& prefix = "") {
  std::map<std::string, const State*> result;
  for (const auto& [name, value] : state.entries()) {
    const auto* nested = std::get_if<std::shared_ptr<State>>(&value);
    if (nested == nullptr) continue;
    if (is_pieces(**nested)) {
      result[prefix + name] = nested->get();
    } else {
      result.merge(collect(**nested, prefix + name + "."));
    }
  }
  return result;
}

}  // namespace

State make_pieces(const Shape& shape, int64_t begin, const Tensor& elements) {
  State state;
  state.set(kFullShape, to_string(shape));
  if (!elements.defined() || elements.numel() == 0) return state;
  TANDEM_CHECK(ShapeError, elements.dim() == 1 && begin >= 0 && begin <= num_elements(shape) - elements.numel(),
               "make_pieces: elements of shape ", elements.shape(), " from element ", begin,
               " on are not a range of a tensor of shape ", shape);
  state.set(name_of({begin, begin + elements.numel(), elements}), elements);
  return state;
}

bool is_pieces(const State& state) {
  const State::Value* shape = state.find(kFullShape);
  return shape != nullptr && std::holds_alternative<std::string>(*shape);
}

State pieces_of(const State& state) {
  State result;
  for (const auto& [path, pieces] : collect(state)) result.set(path, *pieces);
  return result;
}

State without_pieces(const State& state) {
  State result;
  for (const auto& [name, value] : state.entries()) {
    const auto* nested = std::get_if<std::shared_ptr<State>>(&value);
    if (nested == nullptr) {
      result.set(name, value);
    } else if (is_pieces(**nested)) {
      result.set(name + "." + kFullShape, *(*nested)->find(kFullShape));
    } else {
      result.set(name, without_pieces(**nested));
    }
  }
  return result;
}

State merge_pieces(const State& state, const std::vector<State>& ranks) {
  const auto check = [](bool condition, const std::string& path, const auto&... what) {
    TANDEM_CHECK(StateError, condition, "merge_pieces: '", path, "': ", what...);
  };
  const auto expected = collect(state);
  std::map<std::string, std::vector<Piece>> pieces;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto own = collect(ranks[r]);
    for (const auto& [path, tensor] : own)
      check(expected.contains(path), path, "rank ", r, " has pieces of this tensor, the merged state does not");
    for (const auto& [path, tensor] : expected) {
      const auto found = own.find(path);
      check(found != own.end(), path, "rank ", r, " does not have this tensor");
      const auto& shape = tensor->get<std::string>(kFullShape);
      const auto& own_shape = found->second->get<std::string>(kFullShape);
      check(own_shape == shape, path, "shape ", own_shape, " on rank ", r, ", expected ", shape);
      for (const auto& [name, value] : found->second->entries()) {
        if (name == kFullShape) continue;
        std::optional<Piece> piece = to_piece(name, value);
        check(piece.has_value(), path + "." + name, "not a piece, on rank ", r);
        piece->rank = static_cast<int>(r);
        pieces[path].push_back(std::move(*piece));
      }
    }
  }
  State result = without_pieces(state);
  for (const auto& [path, tensor] : expected) {
    const auto& text = tensor->get<std::string>(kFullShape);
    const Shape shape(numbers_in(text));
    check(text == to_string(shape), path, "'", text, "' is not a shape");
    const int64_t numel = num_elements(shape);
    const std::string problem = sort_pieces(pieces[path], 0, numel);
    check(problem.empty(), path, problem);
    for (const Piece& piece : pieces[path]) {
      check(piece.end <= numel, path, describe(piece), " exceeds the shape ", text);
      result.set(path + "." + name_of(piece), piece.elements);
    }
  }
  return result;
}

std::optional<Piece> to_piece(const std::string& name, const State::Value& value) {
  const auto* elements = std::get_if<Tensor>(&value);
  const std::vector<int64_t> range = numbers_in(name);
  if (elements == nullptr || !elements->defined() || range.size() != 2) return std::nullopt;
  const Piece piece = {range[0], range[1], *elements};
  const bool fits = 0 <= piece.begin && piece.begin < piece.end && elements->shape() == Shape(piece.end - piece.begin);
  return fits && name == name_of(piece) ? std::optional(piece) : std::nullopt;
}

std::string sort_pieces(std::vector<Piece>& pieces, int64_t begin, int64_t end) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return std::pair(a.begin, a.rank) < std::pair(b.begin, b.rank); });
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].begin < pieces[i - 1].end)
      return str("pieces ", describe(pieces[i - 1]), " and ", describe(pieces[i]), " overlap");
  }
  int64_t at = begin;  // the elements of [begin, end) before it are in pieces
  const auto is_missing = [&](int64_t next) { return at < std::min(next, end); };
  for (const Piece& piece : pieces) {
    if (is_missing(piece.begin)) return str("elements [", at, ":", std::min(piece.begin, end), "] are missing");
    at = std::max(at, piece.end);
  }
  return is_missing(end) ? str("elements [", at, ":", end, "] are missing") : "";
}

Tensor view_elements(const Tensor& tensor, int64_t begin, int64_t end) {
  TANDEM_CHECK(StateError, tensor.is_contiguous(), "view_elements: the tensor is not contiguous");
  return make_view(tensor.storage(), tensor.dtype(), {end - begin}, {1}, tensor.impl().offset + begin);
}

void copy_elements(const std::vector<Tensor>& from, const Tensor& out) {
  int64_t at = 0;
  for (const Tensor& elements : from) {
    primitives::copy(elements, view_elements(out, at, at + elements.numel()), out.num_bytes());
    at += elements.numel();
  }
}

}}  // namespace tandem::v0
