// The JSON of an index, which lists the files of weights that are split into several. Private to io/.
//
//     {"metadata": {"total_size": 12}, "weight_map": {"fc.weight": "model-00001-of-00002.safetensors", ...}}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tandem { inline namespace v0 { namespace io {

/// The file of each tensor, by the tensor's name.
using WeightMap = std::map<std::string, std::string>;

/// The index as JSON, with sorted names. `total_size`: bytes of all tensors.
std::string write_index(const WeightMap& weight_map, int64_t total_size);

/// Parses an index. Other entries than "weight_map" are ignored. Throws IoError, which names `path`, unless the text is
/// JSON with one object "weight_map", whose names are not repeated and whose values are names of files in the index's
/// folder: not empty, without '/' and NUL, not "." or "..".
WeightMap parse_index(const std::string& path, std::string_view text);

}}}  // namespace tandem::v0::io
