// The safetensors format: named tensors in a file that Python reads too (https://github.com/huggingface/safetensors).
//
// A file is the header's length (8 bytes, little-endian), the header (JSON: name -> dtype, shape, byte range), the
// tensors' bytes (row-major, little-endian, without gaps).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace io {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

/// What a file holds.
struct SafetensorsFile {
  NamedTensors tensors;  ///< on the CPU, in the file's order, then the aliases
  Metadata metadata;     ///< without the entries that stand for aliases
};

/// Writes the tensors (any device, any strides) to `path`; equal input gives equal bytes.
///
/// The file appears whole or not at all: it is written beside `path` under another name, forced to disk, and renamed.
/// A tensor given under several names (a tied parameter) is written once, under the first of them in the list; each
/// other name is an entry "alias:<name>" in the file's metadata whose value is the name that was written.  Only tensors
/// that show the same elements of the same memory in the same way count as one.
///
/// Throws ValueError, writing nothing, for a name that is empty, "__metadata__", repeated, no valid UTF-8 or holds a
/// NUL, for metadata that is no valid UTF-8 or has a key that begins with "alias:", and for a header above 100 MB;
/// StateError for an undefined tensor; IoError with the path and the system's reason where the file cannot be written:
/// `path` is then unchanged.
TANDEM_API void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// Reads a file, restoring aliases as handles of the same tensor.  Throws IoError naming the path and the rule where
/// the file deviates from the format: it has at least 8 bytes; the header has at most 100 MB and lies inside the file,
/// is UTF-8 and JSON of exactly the schema, without repeated names or fields; the tensors' ranges follow one another
/// from the data's first byte to its last; each has the size that dtype and shape ask for; a bool is 0 or 1; an alias
/// refers to a tensor.  Throws DTypeError for an element type that tandem does not have.
TANDEM_API SafetensorsFile load_safetensors(const std::string& path);

}}}  // namespace tandem::v0::io
