// save_safetensors and save_state that return the digest of the written file. Private to io/.
#pragma once

#include <string>

#include <tandem/io/atomic_file.h>
#include <tandem/io/safetensors.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

/// save_safetensors, returning the digest of the file.
FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);
/// save_state with this metadata and the state's own, returning the digest of the file.
FileDigest write_state(const std::string& path, const State& state, Metadata metadata = {});

}}}  // namespace tandem::v0::io
