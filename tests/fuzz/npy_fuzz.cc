// NumPy's .npy files.
#include <tandem/io/npy.h>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz_file(data, size, 8, [](const std::string& path) { tandem::io::load_npy(path); });
  return 0;
}
