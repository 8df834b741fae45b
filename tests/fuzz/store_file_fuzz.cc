// The log file of a FileStore.
#include <tandem/distributed/rendezvous/file_log.h>

#include <cstdlib>
#include <string_view>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::distributed::file_log;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tandem::testing::fuzz(size, 4, [&] {
    size_t records = 0;
    const size_t whole = parse(bytes, [&](const Record& record) { records += encode(record).size(); });
    // The parsed records have all bytes up to the end of the last record.
    if (whole != records || whole > size) std::abort();
  });
  return 0;
}
