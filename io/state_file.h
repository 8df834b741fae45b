// Files of State: the saved state of modules, optimizers, generators and samplers.
#pragma once

#include <string>
#include <string_view>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

/// Writes `state` to `path` as a safetensors file. Tensors (any device, dtype and strides) are stored under their
/// paths ("fc1.weight") by save_safetensors. All other values are stored as JSON in the file's metadata under "state":
///
///     {"lr": 0.1, "num_parameters": 2, "nesterov": false, "name": "SGD", "state": {"0": {"momentum_buffer": null}}}
///
/// null is a tensor. A number with a decimal point or an exponent is a double; loading restores its exact bits (NaN:
/// the quiet NaN). ["inf"], ["-inf"] and ["nan"] are doubles too. The order of entries is kept. Equal states give
/// equal bytes. The file is replaced atomically (see save_safetensors). The metadata also has "format": "pt", which
/// Hugging Face's transformers requires.
///
/// Throws StateError for an undefined tensor, a state nested more than 64 deep, or a state with more than 16384 entries
/// of its own; ValueError for a name or string that is not valid UTF-8; and the errors of save_safetensors. After an
/// error `path` is unchanged.
TANDEM_API void save_state(const std::string& path, const State& state);

/// Reads a file of save_state; the tensors are on the CPU.  From a safetensors file of another program, which has no
/// "state", the result has the tensors only, at most 65536. The file is not mapped into memory.
///
/// Throws the errors of load_safetensors, and DTypeError for a tensor that it would skip. Throws IoError, with the path
/// and the byte of the JSON, if the JSON does not have the form above or does not name exactly the tensors of the file,
/// and if the tensors' names are not paths of a State.
TANDEM_API State load_state(const std::string& path);

/// The bytes of the file that save_state writes. Throws as save_state, except for IoError.
TANDEM_API std::string state_to_bytes(const State& state);
/// The state of these bytes. Throws as load_state; `name` replaces the path in error texts.
TANDEM_API State state_from_bytes(std::string_view bytes, const std::string& name = "bytes");

}}}  // namespace tandem::v0::io
