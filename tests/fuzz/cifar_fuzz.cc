// CIFAR-10 record files.
#include <tandem/data/cifar.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz_file(data, size, 4, [](const std::string& path) {
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string folder =
        std::string(base != nullptr ? base : "/tmp") + "/cifar_fuzz_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    const std::string link = folder + "/test_batch.bin";
    ::unlink(link.c_str());
    if (::symlink(path.c_str(), link.c_str()) != 0) std::abort();
    tandem::data::CifarDataset(folder, tandem::data::CifarSplit::kTest, {.records_per_file = 1});
  });
  return 0;
}
