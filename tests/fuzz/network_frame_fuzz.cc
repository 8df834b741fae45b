// Frames received by a rank: a header, and a payload whose type is in the header.
#include <tandem/distributed/backends/network/frame.h>

#include <algorithm>
#include <string>

#include <tandem/tests/fuzz/fuzz.h>

using namespace tandem::distributed::network;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::fuzz(size, 64, [&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    Expected expected;
    expected.max_payload = kInlineBytes + 1024;
    expected.max_data = 256 << 10;
    expected.seq = 7;
    const FrameHeader header = check_header({bytes, size}, expected);
    const std::string payload(reinterpret_cast<const char*>(bytes) + sizeof(header),
                              std::min<size_t>(header.length, size - sizeof(header)));
    switch (static_cast<FrameType>(header.type)) {
      case FrameType::kSignature: decode_signature(payload, 4); break;
      case FrameType::kOffer: decode_message(payload); break;
      case FrameType::kAnswer: decode_answer(payload); break;
      case FrameType::kData:
      case FrameType::kGoodbye: break;
    }
  });
  return 0;
}
