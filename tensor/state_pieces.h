// Tensors of a State of which each rank has a piece (sharded optimizers).
//
// A piece is a contiguous range of a tensor's elements in row-major order. In a State, such a tensor is a nested State:
// the tensor's shape as the string "full_shape", and each piece as a 1-D tensor with the name "[begin:end]":
//
//     {"exp_avg": {"full_shape": "[64, 128]", "[2048:4096]": <float32 [2048]>}}
//
// A rank without elements has only "full_shape". After merge_pieces the state has the pieces of all ranks. StateReader
// reads any range of elements from both forms, and from whole tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {

/// Name of the shape in such a nested state.
inline constexpr const char* kFullShape = "full_shape";

/// Elements [begin, end) of a tensor.
struct Piece {
  int64_t begin = 0;  ///< inclusive
  int64_t end = 0;    ///< exclusive
  Tensor elements;    ///< [end - begin]
  int rank = -1;      ///< whose piece it is, for error texts; -1 if unknown
};

/// The nested state of a tensor of this shape of which this rank has `elements`, 1-D, from element `begin` on.
/// `elements` may be empty or undefined. Shares the memory of `elements`. Throws ShapeError if `elements` is not 1-D or
/// exceeds the tensor.
TANDEM_API State make_pieces(const Shape& shape, int64_t begin, const Tensor& elements);
/// Whether `state` is the nested state of a tensor in pieces: it has a string "full_shape".
TANDEM_API bool is_pieces(const State& state);
/// The tensors in pieces of a state, at their paths; empty if there are none. Tensors are shared.
TANDEM_API State pieces_of(const State& state);
/// All other values of a state. Of a tensor in pieces "full_shape" remains. Tensors are shared.
TANDEM_API State without_pieces(const State& state);
/// `state` with the pieces of all ranks instead of its own; of ranks[r], the state of rank r, only the pieces are used.
/// Tensors are shared. Throws StateError, with the path and the ranks, unless all ranks and `state` have the same
/// tensors in pieces, with equal shapes, and every element occurs in exactly one piece.
TANDEM_API State merge_pieces(const State& state, const std::vector<State>& ranks);

/// The piece of an entry of such a nested state; nullopt unless the entry is a 1-D tensor whose size fits its name.
TANDEM_API std::optional<Piece> to_piece(const std::string& name, const State::Value& value);
/// Sorts the pieces of one tensor. Describes two pieces that overlap, or elements of [begin, end) that are in no piece.
/// "" if there is no such problem.
TANDEM_API std::string sort_pieces(std::vector<Piece>& pieces, int64_t begin, int64_t end);
/// Elements [begin, end) of a row-major tensor, a 1-D view without autograd.
TANDEM_API Tensor view_elements(const Tensor& tensor, int64_t begin, int64_t end);
/// Copies 1-D tensors one after the other into `out`, which is row-major and has as many elements. Dtypes and devices
/// may differ.
TANDEM_API void copy_elements(const std::vector<Tensor>& from, const Tensor& out);

}}  // namespace tandem::v0
