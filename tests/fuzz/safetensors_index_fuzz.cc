// Indices of weights in several files.
#include <tandem/io/safetensors_index.h>

#include <string_view>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tandem::testing::fuzz(size, 40, [&] { tandem::io::parse_index("input", text); });
  return 0;
}
