// Headers of safetensors files. The input has no header length, because most mutations of a whole file would only fail
// its check. The first byte of the input is the number of bytes of data.
#include <tandem/io/safetensors_header.h>

#include <string_view>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  tandem::testing::fuzz(size, 40, [&] { tandem::io::parse_header("input", text, data[0]); });
  return 0;
}
