// Files of byte-level BPE. The first line of the input is the part of vocab.json after the tokens of the 256 bytes, the
// rest is merges.txt.
#include <tandem/text/bpe.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <tandem/base/error.h>
#include <tandem/tests/fuzz/fuzz.h>

namespace {

/// The first entries of vocab.json: the characters that stand for bytes.
std::string byte_tokens() {
  std::string entries = "{";
  for (int code = 0x21, id = 0; code < 0x144; ++code) {
    if ((code > 0x7e && code < 0xa1) || code == 0xad) continue;
    char escape[] = "\\u0000";
    std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(code));
    entries += tandem::str(id == 0 ? "\"" : ",\"", escape, "\":", id);
    ++id;
  }
  return entries;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t newline = std::min(input.find('\n'), size);
  static const int kMerges = ::memfd_create("merges", MFD_CLOEXEC);
  const std::string lines = input.substr(std::min(newline + 1, size));
  if (::ftruncate(kMerges, 0) != 0 || ::pwrite(kMerges, lines.data(), lines.size(), 0) < 0) std::abort();
  const std::string merges = "/proc/self/fd/" + std::to_string(kMerges);
  static const std::string kBytes = byte_tokens();
  const std::string vocabulary = kBytes + input.substr(0, newline);
  tandem::testing::fuzz_file(reinterpret_cast<const uint8_t*>(vocabulary.data()), vocabulary.size(), 100,
                             [&](const std::string& path) {
                               const tandem::text::BpeTokenizer tokenizer(path, merges, {.special_tokens = {}});
                               const std::string text = "abcabc a'll\xff";
                               if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
                             });
  return 0;
}
