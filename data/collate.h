// Collate functions: batches of examples, also of sequences that differ in length.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Combines at least one example into a batch: DataLoaderOptions::collate. Several threads call it concurrently. The
/// batch's `size` must be the number of examples, and its tensors must be on the CPU.
using Collate = std::function<Batch(std::span<const Example> examples)>;

/// Stacks the tensors of the examples. Throws the errors of Dataset::get_batch; the text names the example of the
/// batch.
TANDEM_API Batch default_collate(std::span<const Example> examples);

/// A collate function for tensors whose first dimension differs. It pads each tensor named in `padding` ("input",
/// "target", or the name of one of the `tensors`) at the end of its first dimension to the longest tensor of the batch,
/// with the given value, as torch.nn.utils.rnn.pad_sequence with batch_first. The other tensors are stacked. For each
/// padded tensor the batch has a tensor "<name>_lengths", int64 [size], with the original sizes.
///
///     data::DataLoader loader(sentences, sampler,
///                             {.batch_size = 32, .collate = data::pad_collate({{"input", 0}, {"target", -100}})});
///     for (auto& batch : loader) pack_padded_sequence(embed(batch.input), batch["input_lengths"], ...);
///
/// The function throws ValueError for a name that the first example does not have, or if an example has a tensor
/// "<name>_lengths" already; ShapeError for a 0-dim tensor to pad; and the errors of default_collate.
TANDEM_API Collate pad_collate(std::map<std::string, double> padding);

}}}  // namespace tandem::v0::data
