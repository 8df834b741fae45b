// What stands in a checkpoint's manifest.json.  Private to io/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <tandem/io/atomic_file.h>

namespace tandem { inline namespace v0 { namespace io {

constexpr int64_t kManifestFormat = 1;

struct Manifest {
  std::string library_version;
  int64_t step = 0;
  int64_t sequence = 0;  ///< later checkpoints of a folder have larger ones, whatever their step
  int64_t world_size = 1;
  std::map<std::string, FileDigest> files;  ///< by name
};

/// "rank-3.safetensors"
std::string rank_file_name(int64_t rank);

/// As JSON with a line for each entry; the last one is a checksum of those before it.
std::string manifest_text(const Manifest& manifest);

/// Reads such a text.  Throws IoError naming `path` for any other, for one whose checksum differs, and where `files`
/// are not exactly those of a checkpoint of world_size ranks.
Manifest parse_manifest(const std::string& path, std::string_view text);

}}}  // namespace tandem::v0::io
