// A State in a file: what modules, optimizers, generators and samplers save.
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

/// Writes `state` to `path` as a safetensors file: its tensors by their paths ("fc1.weight"), as save_safetensors does,
/// and everything else as JSON in the file's metadata under "state":
///
///     {"lr": 0.1, "num_parameters": 2, "nesterov": false, "name": "SGD", "state": {"0": {"momentum_buffer": null}}}
///
/// null stands for a tensor; a number with a point or an exponent is a double, written so that it is read back to the
/// bit; ["inf"], ["-inf"] and ["nan"] are those doubles.  The order of entries is kept.  Equal states give equal bytes,
/// and the file appears whole or not at all.
///
/// Throws, writing nothing, StateError for an undefined tensor, a state nested more than 64 deep or with more than 16384
/// entries of its own, ValueError for a
/// string that is no valid UTF-8, and what save_safetensors throws.
TANDEM_API void save_state(const std::string& path, const State& state);

/// Reads such a file; the tensors are on the CPU.  Of a safetensors file without "state" (another program's) the result
/// holds the tensors alone.  Throws what load_safetensors throws, and IoError, naming path and place, where the JSON
/// deviates from the form above or does not name exactly the tensors of the file.
TANDEM_API State load_state(const std::string& path);

}}}  // namespace tandem::v0::io
