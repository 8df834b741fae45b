#include <tandem/io/manifest.h>

#include <zlib.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <system_error>

#include <tandem/base/error.h>
#include <tandem/io/json.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

std::string hex(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

uint32_t checksum(std::string_view text) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

/// Reads what manifest_text wrote: its fields in its order, so that each occurs once.
class Reader {
 public:
  Reader(std::string_view where, std::string_view text) : json_(where, text), text_(text) {}

  Manifest read() {
    Manifest result;
    json_.expect('{');
    key("format");
    const int64_t format = json_.count();
    json_.check(format == kManifestFormat, "the checkpoint has format ", format, ", this version of tandem reads ",
                kManifestFormat);
    next_key("library_version");
    result.library_version = json_.string();
    next_key("step");
    result.step = json_.count();
    next_key("sequence");
    result.sequence = json_.count();
    next_key("world_size");
    result.world_size = json_.count();
    next_key("files");
    files(result.files);
    json_.expect(',');
    json_.peek();
    const std::string_view covered = text_.substr(0, json_.position());
    key("crc32");
    json_.check(crc32() == checksum(covered), "the manifest's checksum differs from its contents");
    json_.expect('}');
    json_.expect_end();
    return result;
  }

 private:
  void key(std::string_view expected) {
    const std::string name = json_.string();
    json_.check(name == expected, "expected the field '", expected, "', got '", name, "'");
    json_.expect(':');
  }
  void next_key(std::string_view expected) {
    json_.expect(',');
    key(expected);
  }

  uint32_t crc32() {
    const std::string digits = json_.string();
    uint32_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, value, 16);
    json_.check(digits.size() == 8 && result.ec == std::errc() && result.ptr == end, "expected 8 hexadecimal digits");
    return value;
  }

  void files(std::map<std::string, FileDigest>& out) {
    json_.expect('{');
    do {
      const std::string name = json_.string();
      json_.check(!out.contains(name), "the file '", name, "' occurs twice");
      json_.expect(':');
      json_.expect('{');
      FileDigest& digest = out[name];
      key("bytes");
      digest.num_bytes = json_.count();
      next_key("crc32");
      digest.crc32 = crc32();
      json_.expect('}');
    } while (json_.accept(','));
    json_.expect('}');
  }

  JsonReader json_;
  std::string_view text_;
};

}  // namespace

std::string rank_file_name(int64_t rank) { return str("rank-", rank, ".safetensors"); }

std::string manifest_text(const Manifest& manifest) {
  std::string out = str("{\n  \"format\": ", kManifestFormat, ",\n  \"library_version\": ");
  append_quoted(out, manifest.library_version);
  out += str(",\n  \"step\": ", manifest.step, ",\n  \"sequence\": ", manifest.sequence,
             ",\n  \"world_size\": ", manifest.world_size, ",\n  \"files\": {");
  const char* separator = "\n";
  for (const auto& [name, digest] : manifest.files) {
    out += separator;
    separator = ",\n";
    out += "    ";
    append_quoted(out, name);
    out += str(": {\"bytes\": ", digest.num_bytes, ", \"crc32\": \"", hex(digest.crc32), "\"}");
  }
  out += "\n  },\n  ";
  return out + "\"crc32\": \"" + hex(checksum(out)) + "\"\n}\n";
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  const std::string where = str("Checkpointer: '", path, "': ");
  TANDEM_CHECK(IoError, is_valid_utf8(text), where, "the manifest is no valid UTF-8");
  Manifest manifest = Reader(where, text).read();
  const auto check_file = [&](const std::string& name) {
    TANDEM_CHECK(IoError, manifest.files.contains(name), where, "the manifest of ", manifest.world_size,
                 " ranks does not list '", name, "'");
  };
  check_file("model.safetensors");
  check_file("optimizer.safetensors");
  const auto num_ranks = static_cast<int64_t>(manifest.files.size()) - 2;
  TANDEM_CHECK(IoError, manifest.world_size == num_ranks && num_ranks >= 1, where, "the manifest of ",
               manifest.world_size, " ranks lists ", num_ranks, " further files");
  for (int64_t rank = 0; rank < num_ranks; ++rank) check_file(rank_file_name(rank));
  return manifest;
}

}}}  // namespace tandem::v0::io
