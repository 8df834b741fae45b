// Token files.
#include <tandem/text/token_file.h>

#include <vector>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::text;
  for (const TokenType type : {TokenType::kUInt16, TokenType::kUInt32}) {
    tandem::testing::fuzz_file(data, size, 8, [&](const std::string& path) {
      const TokenFile file(path, 50257, type);
      std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
      file.read(0, tokens);
    });
  }
  return 0;
}
