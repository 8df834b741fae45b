// Writes valid and invalid IDX files for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/tests/support/temporary_folder.h>

namespace tandem::testing {

using Bytes = std::vector<uint8_t>;

inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// An IDX file of unsigned bytes.
inline Bytes idx(const std::vector<uint32_t>& sizes, const Bytes& values) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(size >> shift));
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

inline Bytes gzip(Bytes bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(bytes.size() + 1000);
  stream.next_in = bytes.data();
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace tandem::testing
