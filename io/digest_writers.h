// Forms of the functions for safetensors files and states: digests of written files, mapped files, and bytes in memory.
// Private to io/.
#pragma once

#include <string>
#include <string_view>

#include <tandem/io/atomic_file.h>
#include <tandem/io/safetensors.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

/// save_safetensors, returning the digest of the file.
FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);
/// The bytes of the file that save_safetensors writes.
std::string safetensors_bytes(const NamedTensors& tensors, const Metadata& metadata);
/// load_safetensors of these bytes, without views; `name` replaces the path in error texts.
SafetensorsFile load_safetensors_bytes(std::string_view bytes, const std::string& name);
/// save_state with this metadata and the state's own, returning the digest of the file.
FileDigest write_state(const std::string& path, const State& state, Metadata metadata = {});
/// The bytes of that file.
std::string state_bytes(const State& state, Metadata metadata = {});
/// Writes these bytes as write_state does.
FileDigest write_safetensors_bytes(const std::string& path, std::string_view bytes);
/// load_state, with tensors that are views of the memory-mapped file (see load_safetensors).
State map_state(const std::string& path);

}}}  // namespace tandem::v0::io
