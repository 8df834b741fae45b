// The contents of a checkpoint's manifest.json. Private to io/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/io/atomic_file.h>

namespace tandem { inline namespace v0 { namespace io {

/// The newest format. parse_manifest reads all formats from 1 on: a change increases the format and keeps the old
/// fields readable. Format 2 has files of pieces; a checkpoint without them has format 1.
constexpr int64_t kManifestFormat = 2;

struct Manifest {
  std::string library_version;
  int64_t step = 0;
  int64_t sequence = 0;  ///< increases with each checkpoint saved to a folder, independently of `step`
  int64_t world_size = 1;
  bool has_pieces = false;                  ///< whether there is a file of pieces per rank
  std::map<std::string, FileDigest> files;  ///< by file name
};

/// "rank-3.safetensors"
std::string rank_file_name(int64_t rank);
/// "pieces-3.safetensors"
std::string pieces_file_name(int64_t rank);
/// The names of the files that the manifest lists.
std::vector<std::string> file_names(const Manifest& manifest);

/// The manifest as JSON, one line per field. The last field is the CRC-32 of the text before it.
std::string manifest_text(const Manifest& manifest);

/// Parses the text of manifest_text. Throws IoError, which names `path`, for another form or order of the fields,
/// a format above kManifestFormat, a wrong checksum, or `files` that are not exactly file_names().
Manifest parse_manifest(const std::string& path, std::string_view text);

}}}  // namespace tandem::v0::io
