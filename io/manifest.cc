#include <tandem/io/manifest.h>

#include <zlib.h>

#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

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

/// Accepts the JSON that manifest_text writes: the fields in its order, so that each occurs once.
class ManifestHandler : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;

  Manifest manifest;

 private:
  /// The fields of an object, in order.
  struct Fields {
    std::vector<std::string_view> names;
    size_t num_read = 0;
  };

  void key(std::string name) override {
    if (depth() == 2) {
      const auto [file, is_new] = manifest.files.try_emplace(name);
      check(is_new, "the file '", name, "' occurs twice");
      digest_ = &file->second;
      digest_fields_.num_read = 0;
      return;
    }
    Fields& fields = depth() == 1 ? fields_ : digest_fields_;
    check(fields.num_read < fields.names.size(), "unknown field '", name, "'");
    field_ = fields.names[fields.num_read++];
    check(name == field_, "expected the field '", field_, "', got '", name, "'");
    if (depth() == 1 && field_ == "crc32") checksum_ = checksum(text().substr(0, position() - kQuotes - name.size()));
  }

  void value(JsonValue value) override {
    if (depth() == 0) return;
    if (depth() == 2 || field_ == "files") {
      get<JsonObject>(value);
    } else if (field_ == "format") {
      const int64_t format = count(value);
      check(1 <= format && format <= kManifestFormat, "the checkpoint has format ", format,
            ", this version of tandem reads formats 1 to ", kManifestFormat,
            format > kManifestFormat ? "; load it with a newer tandem" : "");
      manifest.has_pieces = format > 1;
    } else if (field_ == "library_version") {
      manifest.library_version = std::move(get<std::string>(value, "'", field_, "': "));
    } else if (field_ == "step") {
      manifest.step = count(value);
    } else if (field_ == "sequence") {
      manifest.sequence = count(value);
    } else if (field_ == "world_size") {
      manifest.world_size = count(value);
    } else if (field_ == "bytes") {
      digest_->num_bytes = count(value);
    } else if (depth() == 3) {
      digest_->crc32 = crc32(value);
    } else {
      check(crc32(value) == checksum_, "the manifest's checksum differs from its contents");
    }
  }

  void end() override {
    if (depth() == 1) return;
    const Fields& fields = depth() == 0 ? fields_ : digest_fields_;
    if (fields.num_read < fields.names.size())
      check(false, "the field '", fields.names[fields.num_read], "' is missing");
  }

  int64_t count(JsonValue& value) const { return static_cast<int64_t>(get<uint64_t>(value, "'", field_, "': ")); }

  uint32_t crc32(JsonValue& value) const {
    const std::string& digits = get<std::string>(value, "'", field_, "': ");
    uint32_t result = 0;
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, result, 16);
    check(digits.size() == 8 && parsed.ec == std::errc() && parsed.ptr == end, "expected 8 hexadecimal digits, got '",
          digits, "'");
    return result;
  }

  static constexpr size_t kQuotes = 2;

  Fields fields_ = {{"format", "library_version", "step", "sequence", "world_size", "files", "crc32"}};
  Fields digest_fields_ = {{"bytes", "crc32"}};
  std::string_view field_;  ///< of the next value
  FileDigest* digest_ = nullptr;
  uint32_t checksum_ = 0;  ///< of the text before the field "crc32"
};

}  // namespace

std::string rank_file_name(int64_t rank) { return str("rank-", rank, ".safetensors"); }

std::string pieces_file_name(int64_t rank) { return str("pieces-", rank, ".safetensors"); }

std::vector<std::string> file_names(const Manifest& manifest) {
  std::vector<std::string> names = {"model.safetensors", "optimizer.safetensors"};
  for (int64_t rank = 0; rank < manifest.world_size; ++rank) {
    names.push_back(rank_file_name(rank));
    if (manifest.has_pieces) names.push_back(pieces_file_name(rank));
  }
  return names;
}

std::string manifest_text(const Manifest& manifest) {
  std::string out =
      str("{\n  \"format\": ", manifest.has_pieces ? 2 : 1,
          ",\n  \"library_version\": ", json_quoted(manifest.library_version), ",\n  \"step\": ", manifest.step,
          ",\n  \"sequence\": ", manifest.sequence, ",\n  \"world_size\": ", manifest.world_size, ",\n  \"files\": {");
  const char* separator = "\n";
  for (const auto& [name, digest] : manifest.files) {
    out += separator;
    separator = ",\n";
    out +=
        str("    ", json_quoted(name), ": {\"bytes\": ", digest.num_bytes, ", \"crc32\": \"", hex(digest.crc32), "\"}");
  }
  out += "\n  },\n  ";
  return out + "\"crc32\": \"" + hex(checksum(out)) + "\"\n}\n";
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  const std::string where = str("Checkpointer: '", path, "': ");
  ManifestHandler handler(where, text);
  handler.parse();
  Manifest& manifest = handler.manifest;
  const auto check_file = [&](const std::string& name) {
    TANDEM_CHECK(IoError, manifest.files.contains(name), where, "the manifest of ", manifest.world_size,
                 " ranks does not list '", name, "'");
  };
  check_file("model.safetensors");
  check_file("optimizer.safetensors");
  const auto num_files = static_cast<int64_t>(manifest.files.size()) - 2;
  const int64_t per_rank = manifest.has_pieces ? 2 : 1;
  TANDEM_CHECK(IoError, num_files >= 1 && num_files % per_rank == 0 && num_files / per_rank == manifest.world_size,
               where, "the manifest of ", manifest.world_size, " ranks lists ", num_files, " files of ranks, expected ",
               per_rank, " per rank");
  for (const std::string& name : file_names(manifest)) check_file(name);
  return std::move(manifest);
}

}}}  // namespace tandem::v0::io
