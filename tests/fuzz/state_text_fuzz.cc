// The JSON of state files. The file has the tensors "a" and "b.c".
#include <tandem/io/state_file.h>

#include <string>

#include <tandem/io/json.h>
#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (!tandem::io::is_valid_utf8(text)) return 0;
  std::string file(8, '\0');
  file += R"({"__metadata__":{"state":)";
  file += tandem::io::json_quoted(text);
  file +=
      R"(},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b.c":{"dtype":"U8","shape":[],"data_offsets":[3,4]}})";
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((file.size() - 8) >> 8 * i);
  file += "data";
  tandem::testing::fuzz_file(reinterpret_cast<const uint8_t*>(file.data()), file.size(), 60,
                             [](const std::string& path) { tandem::io::load_state(path); });
  return 0;
}
