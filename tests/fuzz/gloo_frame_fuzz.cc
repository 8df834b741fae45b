// Records received by a link of a Gloo group: a header, and a payload whose type is in the header.
#include <tandem/distributed/backends/gloo/frame.h>

#include <span>
#include <string>

#include <tandem/tests/fuzz/fuzz.h>

using namespace tandem::distributed::gloo;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As in Link: the buffer has a fixed size and the header has the length of the payload.
  tandem::testing::fuzz(size, 64, [&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    Expected expected;
    expected.max_payload = kInlineBytes + 1024;
    expected.max_data = 256 << 10;
    expected.sent_records = 100;
    expected.sent_data = 50;
    expected.seq = 7;
    const FrameHeader header = check_header({bytes, size}, expected);
    const std::string payload(reinterpret_cast<const char*>(bytes) + sizeof(header), header.length);
    switch (static_cast<FrameType>(header.type)) {
      case FrameType::kSignature: decode_signature(payload, 4); break;
      case FrameType::kOffer: decode_message(payload); break;
      case FrameType::kAnswer: decode_answer(payload); break;
      case FrameType::kPoison: decode_poison(payload); break;
      case FrameType::kCredit:
      case FrameType::kData:
      case FrameType::kGoodbye: break;
    }
  });
  return 0;
}
