// Requests of clients to the TCP store's server.
#include <tandem/distributed/rendezvous/wire.h>

#include <tandem/tests/fuzz/fuzz.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::distributed::wire;
  tandem::testing::fuzz(size, 40, [&] {
    FrameBuffer buffer;
    buffer.append(reinterpret_cast<const char*>(data), size);
    while (const auto frame = buffer.next(kMaxPayload)) read_request(*frame);
  });
  return 0;
}
