// The writers of this room for callers that note what was written.  Private to io/.
#pragma once

#include <string>

#include <tandem/io/atomic_file.h>
#include <tandem/io/safetensors.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace io {

/// save_safetensors; returns the digest of the file.
FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata);
/// save_state; returns the digest of the file.
FileDigest write_state(const std::string& path, const State& state);

}}}  // namespace tandem::v0::io
