#include <tandem/io/manifest.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::io::Manifest;
using td::io::manifest_text;
using td::io::parse_manifest;

namespace {

constexpr const char* kText = R"({
  "format": 1,
  "library_version": "0.1.0",
  "step": 150,
  "sequence": 2,
  "world_size": 2,
  "files": {
    "model.safetensors": {"bytes": 192, "crc32": "a5538cd1"},
    "optimizer.safetensors": {"bytes": 72, "crc32": "046c3d0f"},
    "rank-0.safetensors": {"bytes": 88, "crc32": "c14983c9"},
    "rank-1.safetensors": {"bytes": 9223372036854775807, "crc32": "ffffffff"}
  },
  "crc32": "cabb8b77"
}
)";

Manifest manifest() {
  return {.library_version = "0.1.0",
          .step = 150,
          .sequence = 2,
          .world_size = 2,
          .files = {{"model.safetensors", {192, 0xa5538cd1}},
                    {"optimizer.safetensors", {72, 0x046c3d0f}},
                    {"rank-0.safetensors", {88, 0xc14983c9}},
                    {"rank-1.safetensors", {INT64_MAX, 0xffffffff}}}};
}

/// The error for kText with the first `from` replaced by `to`, after the path.
std::string error(const std::string& from, const std::string& to) {
  std::string text = kText;
  text.replace(text.find(from), from.size(), to);
  const std::string result = td::testing::error_text<td::IoError>([&] { parse_manifest("PATH", text); });
  const std::string prefix = "Checkpointer: 'PATH': ";
  EXPECT_EQ(result.substr(0, prefix.size()), prefix);
  return result.substr(std::min(prefix.size(), result.size()));
}

/// The error for a manifest with a correct checksum, after the path.
std::string error(const Manifest& manifest) {
  return td::testing::error_text<td::IoError>([&] { parse_manifest("PATH", manifest_text(manifest)); })
      .substr(std::string("Checkpointer: 'PATH': ").size());
}

TEST(Manifest, TextIsExactAndRoundTrips) {
  EXPECT_EQ(manifest_text(manifest()), kText);
  const Manifest parsed = parse_manifest("PATH", kText);
  EXPECT_EQ(parsed.library_version, "0.1.0");
  EXPECT_EQ(parsed.step, 150);
  EXPECT_EQ(parsed.sequence, 2);
  EXPECT_EQ(parsed.world_size, 2);
  EXPECT_EQ(parsed.files, manifest().files);
  EXPECT_EQ(manifest_text(parsed), kText);
}

TEST(Manifest, ChangedTextIsRejected) {
  EXPECT_EQ(error("150", "151"), "byte 404: the manifest's checksum differs from its contents");
  EXPECT_EQ(error("cabb8b77", "cabb8b78"), "byte 404: the manifest's checksum differs from its contents");
  EXPECT_EQ(error("\n  \"step\"", "\"step\""), "byte 401: the manifest's checksum differs from its contents");
  EXPECT_EQ(error("{\n", ""), "byte 10: expected an object, got a string");
}

TEST(Manifest, FieldsOutsideTheSchemaAreRejected) {
  EXPECT_EQ(
      error("\"format\": 1", "\"format\": 3"),
      "byte 16: the checkpoint has format 3, this version of tandem reads formats 1 to 2; load it with a newer tandem");
  EXPECT_EQ(error("\"format\": 1", "\"format\": 0"),
            "byte 16: the checkpoint has format 0, this version of tandem reads formats 1 to 2");
  EXPECT_EQ(error("\"step\": 150,\n  \"sequence\": 2", "\"sequence\": 2,\n  \"step\": 150"),
            "byte 59: expected the field 'step', got 'sequence'");
  EXPECT_EQ(error("\"step\": 150", "\"step\": 150, \"step\": 150"),
            "byte 68: expected the field 'sequence', got 'step'");
  EXPECT_EQ(error("\"cabb8b77\"", "\"cabb8b77\", \"more\": 1"), "byte 412: unknown field 'more'");
  EXPECT_EQ(error(",\n  \"crc32\": \"cabb8b77\"", ""), "byte 383: the field 'crc32' is missing");
  EXPECT_EQ(error("\"bytes\": 192, ", ""), "byte 144: expected the field 'bytes', got 'crc32'");
  EXPECT_EQ(error(", \"crc32\": \"a5538cd1\"", ""), "byte 150: the field 'crc32' is missing");
  EXPECT_EQ(error("\"a5538cd1\"", "\"a5538cd1\", \"more\": 1"), "byte 178: unknown field 'more'");
  EXPECT_EQ(error("150", "-150"), "byte 62: 'step': expected an integer that is not negative, got a negative integer");
  EXPECT_EQ(error("150", "150.0"),
            "byte 63: 'step': expected an integer that is not negative, got a floating-point number");
  EXPECT_EQ(error("\"0.1.0\"", "1"),
            "byte 40: 'library_version': expected a string, got an integer that is not negative");
  EXPECT_EQ(error("192", "9223372036854775808"), "byte 166: an integer is outside the range of 64 bits");
  EXPECT_EQ(error("a5538cd1", "a5538cd"), "byte 169: expected 8 hexadecimal digits, got 'a5538cd'");
  EXPECT_EQ(error("a5538cd1", "a5538cdg"), "byte 170: expected 8 hexadecimal digits, got 'a5538cdg'");
  EXPECT_EQ(error("\"a5538cd1\"", "{}"), "byte 161: 'crc32': expected a string, got an object");
  EXPECT_EQ(error("{\"bytes\": 192, \"crc32\": \"a5538cd1\"}", "192"),
            "byte 140: expected an object, got an integer that is not negative");
  EXPECT_EQ(error("optimizer.safetensors", "model.safetensors"), "byte 196: the file 'model.safetensors' occurs twice");
}

TEST(Manifest, FilesMustMatchTheRanks) {
  Manifest changed = manifest();
  changed.world_size = 3;
  EXPECT_EQ(error(changed), "the manifest of 3 ranks lists 2 files of ranks, expected 1 per rank");
  changed = manifest();
  changed.files.erase("model.safetensors");
  EXPECT_EQ(error(changed), "the manifest of 2 ranks does not list 'model.safetensors'");
  changed = manifest();
  changed.files.erase("rank-1.safetensors");
  changed.files["../secret"] = {};
  EXPECT_EQ(error(changed), "the manifest of 2 ranks does not list 'rank-1.safetensors'");
  changed = manifest();
  changed.files.erase("rank-0.safetensors");
  changed.files.erase("rank-1.safetensors");
  changed.world_size = 0;
  EXPECT_EQ(error(changed), "the manifest of 0 ranks lists 0 files of ranks, expected 1 per rank");
  changed = manifest();
  changed.has_pieces = true;
  EXPECT_EQ(error(changed), "the manifest of 2 ranks lists 2 files of ranks, expected 2 per rank");
  changed.files["pieces-0.safetensors"] = {};
  changed.files["pieces-2.safetensors"] = {};
  EXPECT_EQ(error(changed), "the manifest of 2 ranks does not list 'pieces-1.safetensors'");
  changed.files.erase("pieces-2.safetensors");
  changed.files["pieces-1.safetensors"] = {};
  const Manifest parsed = parse_manifest("PATH", manifest_text(changed));
  EXPECT_EQ(parsed.files, changed.files);
  EXPECT_TRUE(manifest_text(parsed).starts_with("{\n  \"format\": 2,\n"));
  EXPECT_TRUE(parsed.has_pieces);
}

}  // namespace
