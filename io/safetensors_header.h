// The JSON header of a safetensors file. Private to io/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 { namespace io {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format
constexpr size_t kMaxTensors = 1'000'000;

/// The entry of one tensor.
struct HeaderEntry {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
  int64_t begin = 0;  ///< first byte, from the start of the data
  int64_t end = 0;    ///< one past the last byte
};

struct Header {
  std::vector<HeaderEntry> entries;  ///< parse_header sorts them by `begin`
  std::map<std::string, std::string> metadata;
  /// (name, dtype) of the tensors whose dtypes tandem does not support; not in `entries`.
  std::vector<std::pair<std::string, std::string>> unsupported = {};
};

/// The rank of a dtype in the storage order of the format: tensors are stored by descending rank, then by name. Larger
/// elements come first, so every tensor is aligned.
int storage_rank(DType dtype);

/// The header as JSON without spaces, with the entries in the given order.
std::string write_header(const Header& header);

/// Parses the header of a file that has `num_data_bytes` of data. Throws IoError, which names `path`, unless the text
/// has the schema of the format, the byte ranges are contiguous from 0 to `num_data_bytes`, and each range has the size
/// of its dtype and shape, unless tandem does not support the dtype.
Header parse_header(const std::string& path, std::string_view text, int64_t num_data_bytes);

}}}  // namespace tandem::v0::io
