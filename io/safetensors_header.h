// The header of a safetensors file as text.  Private to io/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 { namespace io {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's limit
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxDims = 64;

/// One tensor's entry.
struct HeaderEntry {
  std::string name;
  DType dtype = kFloat32;
  Shape shape;
  int64_t begin = 0;  ///< first byte, from the start of the data
  int64_t end = 0;    ///< one past the last
};

struct Header {
  std::vector<HeaderEntry> entries;  ///< parsed: by ascending `begin`
  std::map<std::string, std::string> metadata;
};

/// The format's rank of a dtype: tensors are stored by descending rank, then by name, so that larger elements come
/// first and everything is aligned.
int storage_rank(DType dtype);

/// The header as JSON without spaces, entries in the given order.
std::string write_header(const Header& header);

/// Parses and checks a header for `num_data_bytes` of data: exact schema, contiguous ranges from 0 to the end, sizes
/// that fit shapes.  `path` is named in the IoError or DTypeError that a deviation throws.
Header parse_header(const std::string& path, std::string_view text, int64_t num_data_bytes);

}}}  // namespace tandem::v0::io
