// Safetensors files, with and without a state.
#include <tandem/io/safetensors.h>

#include <tandem/io/state_file.h>
#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz_file(data, size, 40, [](const std::string& path) { tandem::io::load_safetensors(path); });
  tandem::testing::fuzz_file(data, size, 40, [](const std::string& path) { tandem::io::load_state(path); });
  return 0;
}
