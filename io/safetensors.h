// Files of named tensors in the safetensors format, which Python reads too
// (https://github.com/huggingface/safetensors).
//
// A file consists of the header's length (8 bytes, little-endian), the header (JSON: name -> dtype, shape, byte range)
// and the tensors' bytes (row-major, little-endian, without gaps).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace io {

/// Names and tensors, in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Entries of a file's "__metadata__".
using Metadata = std::map<std::string, std::string>;

/// The contents of a file.
struct SafetensorsFile {
  NamedTensors tensors;  ///< on the CPU, in the order of the file, followed by the aliases
  Metadata metadata;     ///< without the entries of aliases
  /// Names and dtypes of the tensors that were not loaded, because tandem does not support the dtype ("F8_E4M3") or
  /// does not know it. Whether their bytes fit their shape is not checked.
  std::vector<std::pair<std::string, std::string>> skipped;
};

/// Options of load_safetensors.
struct LoadSafetensorsOptions {
  bool mmap = true;  ///< the tensors are views of the memory-mapped file; false: they are copied into memory
};

/// Writes tensors (any device, any dtype of tandem, any strides) to `path`, sorted by descending element size and by
/// name. Equal input gives equal bytes.
///
/// The file is replaced atomically: the bytes are written to a temporary file in the same folder, flushed to disk, and
/// the file is renamed to `path`. The temporary file of a process that was killed is removed by the next save to
/// `path`. A tensor with several names (a tied parameter) is written once, under the first of its names in the list.
/// Each other name is an entry "alias:<name>" of the file's metadata, whose value is the first name. Two tensors are
/// the same if they have the same memory address, dtype, device, shape and strides.
///
/// Throws ValueError for a name that is empty, "__metadata__", repeated, not valid UTF-8 or contains a NUL; for
/// metadata that is not valid UTF-8 or has a key that begins with "alias:"; for more than 1,000,000 tensors; and for a
/// header above 100 MB. Throws
/// StateError for an undefined tensor, and IoError with the path and the system's reason if the file cannot be written.
/// After an error `path` is unchanged. For files that Hugging Face's libraries load use save_pretrained.
TANDEM_API void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// Loads a file. The tensors are on the CPU, row-major, with the dtypes and shapes of the file; an alias is a handle of
/// the same tensor. A tensor of a dtype that tandem does not support is skipped.
///
/// With `mmap` the tensors are views of the mapped file. Only used pages are read, and processes share them in the
/// system's page cache. So load_state_dict needs no memory beyond the memory of the model. The mapping is private:
/// writing to a tensor copies the written pages and never changes the file. The mapping ends with its last tensor.
/// Until then the file must not be truncated or overwritten in place: the values are undefined after that, and using a
/// page behind the new end, or a disk error, ends the process (SIGBUS) without an error that names the file. Replacing
/// the file, as save_safetensors does, is safe. A tensor whose bytes are not aligned to its elements is copied.
///
/// Throws IoError, with the path, the byte and the violated rule, if the file cannot be read or violates the format.
/// The rules: the file has at least 8 bytes; the header has at most 100 MB, ends inside the file, is UTF-8 and JSON of
/// the schema, without repeated names or fields; a tensor has at most 64 dimensions; the byte ranges are contiguous and
/// cover the data; each range has the size of its dtype and shape; a bool is 0 or 1; an alias refers to a tensor.
TANDEM_API SafetensorsFile load_safetensors(const std::string& path, const LoadSafetensorsOptions& options = {});

}}}  // namespace tandem::v0::io
