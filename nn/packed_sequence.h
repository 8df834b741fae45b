// Batches of sequences of different lengths for recurrent layers: torch.nn.utils.rnn.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn {

/// N sequences without padding, sorted by length, the longest first.
struct PackedSequence {
  Tensor data;              ///< [sum of lengths, ...]: the first elements of all sequences, then the second, ...
  Tensor batch_sizes;       ///< int64 [longest length] on the CPU: the number of sequences that have a step t
  Tensor sorted_indices;    ///< int64 [N]: the number of the i-th longest sequence; undefined if they were sorted
  Tensor unsorted_indices;  ///< int64 [N]: the inverse permutation; undefined if they were sorted
};

/// Options of pack_padded_sequence.
struct PackOptions {
  bool batch_first = false;    ///< input is [N, T, ...]
  bool enforce_sorted = true;  ///< lengths must not increase; else the sequences are sorted
};

/// Packs the first lengths[i] steps of each sequence i of `input` [T, N, ...]. `lengths` is int64 [N] on the CPU, from
/// 1 to T. Sequences of equal length keep their order. Differentiable. Throws ShapeError, DTypeError, and ValueError
/// for other lengths.
TANDEM_API PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, PackOptions options = {});

/// Options of pad_packed_sequence.
struct PadPackedOptions {
  bool batch_first = false;                  ///< the result is [N, T, ...]
  double padding_value = 0;                  ///< after the end of a sequence
  std::optional<int64_t> total_length = {};  ///< T; by default the longest length
};

/// Result of pad_packed_sequence.
struct PaddedSequence {
  Tensor output;   ///< [T, N, ...]
  Tensor lengths;  ///< int64 [N] on the CPU
};

/// The inverse of pack_padded_sequence: sequences in their original order, with padding. Differentiable. Throws
/// ShapeError or ValueError if the members of `sequence` do not fit each other, or if total_length is below the longest
/// length.
TANDEM_API PaddedSequence pad_packed_sequence(const PackedSequence& sequence, PadPackedOptions options = {});

/// Options of pad_sequence.
struct PadOptions {
  bool batch_first = false;  ///< the result is [N, T, ...]
  double padding_value = 0;  ///< after the end of a sequence
};

/// Sequences [length, ...] as one tensor [longest length, N, ...] with padding at the end. Differentiable. Throws
/// ValueError for an empty list, ShapeError.
TANDEM_API Tensor pad_sequence(const std::vector<Tensor>& sequences, PadOptions options = {});
/// Packs sequences [length, ...]. Throws as pad_sequence and pack_padded_sequence.
TANDEM_API PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true);

}}}  // namespace tandem::v0::nn
