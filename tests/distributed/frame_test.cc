// Validation of frames of a gloo link: every reason for rejection.
#include <tandem/distributed/backends/gloo/frame.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo { namespace {

using testing::error_text;

constexpr int kWorld = 4;
constexpr size_t kRoom = 100;  // maximum payload of a record
constexpr size_t kRecord = 192;

/// A state after some frames were exchanged.
Expected some_expected() {
  Expected expected;
  expected.seq = 7;
  expected.max_payload = kRoom;
  expected.max_data = 64;
  expected.sent_records = 10;
  expected.sent_data = 5;
  expected.last.arrived_records = 4;
  expected.last.arrived_data = 3;
  expected.last.released_data = 2;
  return expected;
}

/// A valid next header for some_expected().
FrameHeader some_header(FrameType type = FrameType::kSignature) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(type);
  header.seq = 7;
  header.arrived_records = 4;
  header.arrived_data = 3;
  header.released_data = 2;
  return header;
}

FrameHeader check(const FrameHeader& header, const Expected& expected = some_expected(), size_t num_bytes = kRecord) {
  std::vector<std::byte> record(std::max(num_bytes, sizeof(header)));
  std::memcpy(record.data(), &header, sizeof(header));
  return check_header(std::span(record).first(num_bytes), expected);
}

std::string error_of(const FrameHeader& header, const Expected& expected = some_expected(),
                     size_t num_bytes = kRecord) {
  return error_text<IoError>([&] { check(header, expected, num_bytes); });
}

/// some_header() after `change`.
FrameHeader with(const std::function<void(FrameHeader&)>& change, FrameType type = FrameType::kSignature) {
  FrameHeader header = some_header(type);
  change(header);
  return header;
}

TEST(FrameHeaders, ValidHeadersAreAccepted) {
  EXPECT_EQ(check(some_header()).seq, 7u);
  EXPECT_EQ(check(with([](FrameHeader& h) { h.length = kRoom; })).length, kRoom);
  EXPECT_EQ(check(with([](FrameHeader& h) { h.data_length = 64; }, FrameType::kData)).data_length, 64u);
  EXPECT_EQ(check(with([](FrameHeader& h) {
              h.arrived_records = 10;
              h.arrived_data = h.released_data = 5;
            })).released_data,
            5u);
  EXPECT_EQ(check(some_header(), some_expected(), sizeof(FrameHeader)).length, 0u);
}

TEST(FrameHeaders, InvalidHeadersAreRejectedWithReason) {
  const std::string begin = "gloo: received a frame ";
  EXPECT_EQ(error_of(some_header(), some_expected(), sizeof(FrameHeader) - 1), begin + "that is truncated");
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.magic = wire::kMagic; })), begin + "with a wrong magic number");
  for (const uint64_t seq : {6, 8}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.seq = seq; })), begin + "out of order");
  }
  for (const int type : {0, 8, 0xffff}) {
    EXPECT_EQ(error_of(some_header(static_cast<FrameType>(type))), begin + "of an unknown type");
  }

  for (const uint32_t length : {uint32_t{kRoom + 1}, 0xffffffff}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.length = length; })), begin + "that is longer than a record");
  }
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.length = 1; }), some_expected(), sizeof(FrameHeader)),
            begin + "that is longer than a record");
  for (const uint32_t length : {uint32_t{65}, 0xffffffff}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.data_length = length; }, FrameType::kData)),
              begin + "that is longer than a slot");
  }
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.data_length = 1; })),
            begin + "whose data length does not match its type");
  EXPECT_EQ(error_of(some_header(FrameType::kData)), begin + "whose data length does not match its type");
}

TEST(FrameHeaders, InvalidAcknowledgementCountersAreRejected) {
  const std::function<void(FrameHeader&)> changes[] = {
      [](FrameHeader& h) { h.arrived_records = 3; }, [](FrameHeader& h) { h.arrived_records = 11; },
      [](FrameHeader& h) { h.arrived_data = 2; },    [](FrameHeader& h) { h.arrived_data = 6; },
      [](FrameHeader& h) { h.released_data = 1; },   [](FrameHeader& h) { h.released_data = 4; },
  };
  for (const auto& change : changes) {
    EXPECT_EQ(error_of(with(change)), "gloo: received a frame that acknowledges bytes that were not sent");
  }
}

// --- payloads ---

/// `payload` with `number` at position `index`; all payloads begin with numbers.
std::string with_number(std::string payload, size_t index, int64_t value) {
  std::memcpy(payload.data() + index * sizeof(value), &value, sizeof(value));
  return payload;
}

struct Decoder {
  const char* name;
  std::string payload;
  std::function<void(std::string_view)> decode;
};

SignatureFrame some_signature() {
  SignatureFrame frame;
  frame.number = 3;
  frame.data = std::string(kInlineBytes, 'd');
  return frame;
}

MessageFrame some_message() {
  MessageFrame frame;
  frame.id = 5;
  frame.data = std::string(kInlineBytes, 'd');
  return frame;
}

std::vector<Decoder> decoders() {
  return {
      {"signature", encode(some_signature()), [](std::string_view payload) { decode_signature(payload, kWorld); }},
      {"message", encode(some_message()), decode_message},
      {"answer", encode(AnswerFrame{5, AnswerFrame::Kind::kMismatch, some_message()}), decode_answer},
      {"poison", encode(PoisonFrame{2, 1, "no disk"}), decode_poison},
  };
}

TEST(FramePayloads, TruncatedOrOverlongPayloadsAreRejected) {
  for (const Decoder& d : decoders()) {
    SCOPED_TRACE(d.name);
    d.decode(d.payload);
    for (const size_t missing : {size_t{1}, d.payload.size() / 2, d.payload.size()}) {
      const std::string_view part = std::string_view(d.payload).substr(0, d.payload.size() - missing);
      EXPECT_EQ(error_text<IoError>([&] { d.decode(part); }), "store: a frame is shorter than its contents");
    }
    EXPECT_EQ(error_text<IoError>([&] { d.decode(d.payload + "x"); }), "store: a frame is longer than its contents");
  }
}

TEST(FramePayloads, OutOfRangeFieldsAreRejected) {
  struct Case {
    size_t decoder;
    size_t place;  // index of the invalid number
    int64_t value;
    const char* error;
  };
  const char* const kNoValue = "with an invalid enumerator";
  const char* const kLongText = "with a string that is too long";
  const char* const kLongList = "with a list that is too long";
  const Case cases[] = {
      // Signature: number, seq, kind, op, dtype, root, count, name hash, shape hash, on_gpu, in_list, dims, tensors,
      // name, file, line, lists, dims of two parts, data.
      {0, 2, static_cast<int64_t>(CollectiveKind::kBarrier) + 1, kNoValue},
      {0, 2, -1, kNoValue},
      {0, 3, static_cast<int64_t>(ReduceOp::kBitXor) + 1, kNoValue},
      {0, 4, static_cast<int64_t>(kFloat64) + 1, kNoValue},
      {0, 5, -2, "with an invalid root rank"},
      {0, 5, kWorld, "with an invalid root rank"},
      {0, 5, int64_t{1} << 32, "with an invalid root rank"},
      {0, 9, 2, "with invalid device flags"},
      {0, 9, -1, "with invalid device flags"},
      {0, 10, 2, "with invalid device flags"},
      {0, 11, -1, "with a negative count"},
      {0, 12, kMaxShownTensors + 1, kLongText},
      {0, 13, kCallInfoText + 1, kLongText},
      {0, 14, kCallInfoText + 1, kLongText},
      {0, 16, kWorld + 1, kLongList},
      {0, 17, kWorld + 1, kLongList},
      {0, 18, -1, "with a negative count"},
      {0, 19, -1, "with a negative count"},
      // Message: id, tag, dtype, count, name hash, shape hash, GPU, dims, name, file, line, data.
      {1, 2, static_cast<int64_t>(kFloat64) + 1, kNoValue},
      {1, 3, -1, "with a negative count"},
      {1, 7, -1, "with a negative count"},
      {1, 8, kCallInfoText + 1, kLongText},
      {1, 9, kCallInfoText + 1, kLongText},
      // Answer: id, kind, message.
      {2, 1, static_cast<int64_t>(AnswerFrame::Kind::kMismatch) + 1, kNoValue},
      {2, 5, -1, "with a negative count"},
  };
  const std::vector<Decoder> all = decoders();
  for (const Case& c : cases) {
    const Decoder& d = all[c.decoder];
    EXPECT_EQ(error_text<IoError>([&] { d.decode(with_number(d.payload, c.place, c.value)); }),
              std::string("gloo: received a frame ") + c.error)
        << d.name << " with " << c.value << " in place " << c.place;
  }
  EXPECT_EQ(error_text<IoError>([&] { all[3].decode(with_number(all[3].payload, 2, -1)); }),
            "store: a frame contains a string of negative length");
}

TEST(FramePayloads, OverlongTextsAndInlineDataAreRejected) {
  const std::string error = "gloo: received a frame with a string that is too long";
  const auto fails = [&](const auto& decode, const std::string& payload) {
    EXPECT_EQ(error_text<IoError>([&] { decode(payload); }), error);
  };
  SignatureFrame signature = some_signature();
  signature.data += 'd';
  fails([](std::string_view payload) { decode_signature(payload, kWorld); }, encode(signature));
  MessageFrame message = some_message();
  message.data += 'd';
  fails(decode_message, encode(message));
  fails(decode_poison, wire::PayloadWriter().number(0).number(1).text(std::string(kMaxReason + 1, 'r')).take());
}

TEST(FramePayloads, LongNamesAndReasonsAreTruncated) {
  SignatureFrame signature = some_signature();
  signature.name = signature.file = std::string(kCallInfoText + 5, 'n');
  signature.tensors = std::string(kMaxShownTensors, 't');
  signature.shape = Shape(kMaxShownDims + 2, 3);
  signature.sends = {{1, 5}, {2, 6}, {3, 7}, {4, 8}};
  signature.expected = Shape{4, 5};
  const SignatureFrame got = decode_signature(encode(signature), kWorld);
  EXPECT_EQ(got.name, std::string(kCallInfoText, 'n'));
  EXPECT_EQ(got.file, std::string(kCallInfoText, 'n'));
  EXPECT_EQ(got.tensors, signature.tensors);
  EXPECT_EQ(to_string(got.shape), to_string(signature.shape));
  EXPECT_EQ(to_string(got.sent), "[]");
  EXPECT_EQ(to_string(got.expected), "[4, 5]");
  EXPECT_EQ(got.sends, signature.sends);
  EXPECT_EQ(got.data, signature.data);
  EXPECT_EQ(decode_poison(encode(PoisonFrame{2, 1, std::string(kMaxReason + 1, 'r')})).reason,
            std::string(kMaxReason, 'r'));
}

}}}}  // namespace tandem::v0::distributed::gloo
