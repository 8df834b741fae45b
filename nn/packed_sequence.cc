#include <tandem/nn/packed_sequence.h>

#include <algorithm>
#include <numeric>

#include <tandem/base/host_memory.h>
#include <tandem/base/math.h>
#include <tandem/ops/index.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

using Numbers = std::vector<int64_t>;

Tensor to_tensor(const Numbers& numbers, Device device = {}) {
  return from_vector<int64_t>(numbers, {static_cast<int64_t>(numbers.size())}, {kInt64, device});
}

/// For each row of packed data its row in [length * sequences, ...], or with batch_first in [sequences * length, ...].
/// order[i] is the number of the i-th longest sequence.
Numbers padded_rows(const Numbers& batch_sizes, const Numbers& order, int64_t length, bool batch_first) {
  const auto num_sequences = static_cast<int64_t>(order.size());
  Numbers rows;
  for (int64_t t = 0; t < static_cast<int64_t>(batch_sizes.size()); ++t) {
    for (int64_t i = 0; i < batch_sizes[static_cast<size_t>(t)]; ++i) {
      const int64_t sequence = order[static_cast<size_t>(i)];
      rows.push_back(batch_first ? sequence * length + t : t * num_sequences + sequence);
    }
  }
  return rows;
}

Numbers ascending(int64_t n) {
  Numbers numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, PackOptions options) {
  TANDEM_CHECK(ShapeError, input.dim() >= 2, "pack_padded_sequence: input is ", describe(input),
               ", expected [T, N, ...], or [N, T, ...] with batch_first");
  const int64_t length = input.size(options.batch_first ? 1 : 0),
                num_sequences = input.size(options.batch_first ? 0 : 1);
  TANDEM_CHECK(ShapeError, lengths.shape() == Shape({num_sequences}) && num_sequences > 0,
               "pack_padded_sequence: lengths is ", describe(lengths), ", expected one for each of ", num_sequences,
               " sequences");
  TANDEM_CHECK(DTypeError, lengths.dtype() == kInt64 && lengths.device().is_cpu(), "pack_padded_sequence: lengths is ",
               describe(lengths), ", expected int64 on the CPU");
  const Numbers counts = lengths.to_vector<int64_t>();
  for (size_t i = 0; i < counts.size(); ++i) {
    TANDEM_CHECK(ValueError, counts[i] >= 1 && counts[i] <= length, "pack_padded_sequence: lengths[", i, "] is ",
                 counts[i], ", expected 1 to ", length);
    TANDEM_CHECK(ValueError, !options.enforce_sorted || i == 0 || counts[i] <= counts[i - 1],
                 "pack_padded_sequence: lengths[", i, "] is ", counts[i], ", more than lengths[", i - 1, "], which is ",
                 counts[i - 1], "; sort the sequences, or pass .enforce_sorted = false");
  }
  Numbers order = ascending(num_sequences);
  const auto count_of = [&](int64_t sequence) { return counts[static_cast<size_t>(sequence)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return count_of(a) > count_of(b); });
  Numbers batch_sizes, positions(order.size());
  with_host_memory("pack_padded_sequence", saturating_mul(count_of(order[0]), sizeof(int64_t)),
                   [&] { batch_sizes.resize(static_cast<size_t>(count_of(order[0]))); });
  for (size_t i = 0; i < order.size(); ++i) {
    for (int64_t t = 0; t < count_of(order[i]); ++t) ++batch_sizes[static_cast<size_t>(t)];
    positions[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const Device device = input.device();
  const Tensor rows = to_tensor(padded_rows(batch_sizes, order, length, options.batch_first), device);
  PackedSequence packed{index_select(input.flatten(0, 1), 0, rows), to_tensor(batch_sizes), {}, {}};
  if (!options.enforce_sorted) {
    packed.sorted_indices = to_tensor(order, device);
    packed.unsorted_indices = to_tensor(positions, device);
  }
  return packed;
}

PaddedSequence pad_packed_sequence(const PackedSequence& sequence, PadPackedOptions options) {
  const Tensor& data = sequence.data;
  TANDEM_CHECK(ShapeError, data.dim() >= 1 && sequence.batch_sizes.dim() == 1 && sequence.batch_sizes.numel() > 0,
               "pad_packed_sequence: data is ", describe(data), " and batch_sizes ", describe(sequence.batch_sizes),
               ", expected [rows, ...] and [T] with T >= 1");
  const Numbers batch_sizes = sequence.batch_sizes.to_vector<int64_t>();
  int64_t num_rows = 0;
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    TANDEM_CHECK(ValueError, batch_sizes[t] >= 1 && batch_sizes[t] <= batch_sizes[t == 0 ? 0 : t - 1],
                 "pad_packed_sequence: batch_sizes[", t, "] is ", batch_sizes[t],
                 ", expected numbers of at least 1 that do not increase");
    num_rows = saturating_add(num_rows, batch_sizes[t]);
  }
  TANDEM_CHECK(ShapeError, num_rows == data.size(0), "pad_packed_sequence: batch_sizes add up to ", num_rows,
               ", but data is ", describe(data));
  const auto longest = static_cast<int64_t>(batch_sizes.size());
  const int64_t length = options.total_length.value_or(longest), num_sequences = batch_sizes[0];
  TANDEM_CHECK(ValueError, length >= longest, "pad_packed_sequence: total_length is ", length,
               ", expected at least the longest length, ", longest);
  const Tensor& sorted = sequence.sorted_indices;
  const Numbers order = sorted.defined() ? sorted.to_vector<int64_t>() : ascending(num_sequences);
  Numbers numbers = order;
  std::sort(numbers.begin(), numbers.end());
  TANDEM_CHECK(ValueError, numbers == ascending(num_sequences), "pad_packed_sequence: sorted_indices is ",
               describe(sorted), ", expected each number below ", num_sequences, " once");
  Numbers lengths(order.size(), 0);
  for (const int64_t count : batch_sizes) {
    for (int64_t i = 0; i < count; ++i) ++lengths[static_cast<size_t>(order[static_cast<size_t>(i)])];
  }
  Shape shape = data.shape();
  shape[0] = saturating_mul(length, num_sequences);
  const Tensor padding = full(shape, options.padding_value, data.options());
  const Tensor rows = to_tensor(padded_rows(batch_sizes, order, length, options.batch_first), data.device());
  const Tensor output = index_copy(padding, 0, rows, data);
  const Shape sizes = options.batch_first ? Shape({num_sequences, length}) : Shape({length, num_sequences});
  return {output.unflatten(0, sizes), to_tensor(lengths)};
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, PadOptions options) {
  TANDEM_CHECK(ValueError, !sequences.empty(), "pad_sequence: sequences is empty");
  int64_t length = 0;
  for (const Tensor& sequence : sequences) length = std::max(length, sequence.size(0));
  std::vector<Tensor> padded;
  for (const Tensor& sequence : sequences) {
    Shape rest = sequence.shape();
    rest[0] = length - sequence.size(0);
    padded.push_back(cat({sequence, full(rest, options.padding_value, sequence.options())}));
  }
  return stack(padded, options.batch_first ? 0 : 1);
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted) {
  Numbers lengths;
  for (const Tensor& sequence : sequences) lengths.push_back(sequence.size(0));
  return pack_padded_sequence(pad_sequence(sequences), to_tensor(lengths), {.enforce_sorted = enforce_sorted});
}

}}}  // namespace tandem::v0::nn
