// MNIST's IDX files, uncompressed and compressed.
#include <tandem/data/idx.h>

#include <unistd.h>

#include <cstdlib>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz_file(data, size, 4, [](const std::string& path) { tandem::data::read_idx(path); });
  // The file name selects decompression, so a link has the name "*.gz". gzip expands data at most about 1000 times.
  tandem::testing::fuzz_file(data, size, 1100, [](const std::string& path) {
    const char* folder = std::getenv("TEST_TMPDIR");
    const std::string link =
        std::string(folder != nullptr ? folder : "/tmp") + "/idx_fuzz_" + std::to_string(::getpid()) + ".gz";
    ::unlink(link.c_str());
    if (::symlink(path.c_str(), link.c_str()) != 0) std::abort();
    try {
      tandem::data::read_idx(link);
    } catch (...) {
      ::unlink(link.c_str());
      throw;
    }
    ::unlink(link.c_str());
  });
  return 0;
}
