// config.json of GPT-2.
#include <tandem/models/gpt2.h>

#include <tandem/base/error.h>
#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz_file(data, size, 200, [](const std::string& path) {
    try {
      tandem::models::read_gpt2_config(path);
    } catch (const tandem::ValueError&) {
      // Settings that Gpt2 does not support.
    }
  });
  return 0;
}
