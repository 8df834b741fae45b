// Validation of frames between ranks: every reason for rejection; and frames in any pieces through a connection.
#include <tandem/distributed/backends/network/frame.h>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/network/connection.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed::network { namespace {

using testing::error_text;

constexpr int kWorld = 4;
constexpr size_t kRoom = 100;  // maximum payload
constexpr size_t kRecord = 192;

/// A state after some frames were exchanged.
Expected some_expected() {
  Expected expected;
  expected.seq = 7;
  expected.max_payload = kRoom;
  expected.max_data = 64;
  return expected;
}

/// A valid next header for some_expected().
FrameHeader some_header(FrameType type = FrameType::kSignature) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(type);
  header.seq = 7;
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

TEST(FrameHeaders, InvalidHeadersAreRejectedWithReason) {
  const std::string begin = "gloo: received a frame ";
  EXPECT_EQ(error_of(some_header(), some_expected(), sizeof(FrameHeader) - 1), begin + "that is truncated");
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.magic = wire::kMagic; })), begin + "with a wrong magic number");
  for (const uint64_t seq : {6, 8}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.seq = seq; })), begin + "out of order");
  }
  for (const int type : {0, 7, 0xffff}) {
    EXPECT_EQ(error_of(some_header(static_cast<FrameType>(type))), begin + "of an unknown type");
  }

  for (const uint32_t length : {uint32_t{kRoom + 1}, 0xffffffff}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.length = length; })), begin + "whose payload is too long");
  }
  for (const uint32_t length : {uint32_t{65}, 0xffffffff}) {
    EXPECT_EQ(error_of(with([&](FrameHeader& h) { h.data_length = length; }, FrameType::kData)),
              begin + "whose data is too long");
  }
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.data_length = 1; })),
            begin + "whose data length does not match its type");
  EXPECT_EQ(error_of(some_header(FrameType::kData)), begin + "whose data length does not match its type");
  EXPECT_EQ(error_of(with([](FrameHeader& h) { h.length = h.data_length = 1; }, FrameType::kData)),
            begin + "whose data length does not match its type");
}

// --- connections ---

TEST(ConnectionFrames, AnyPiecesArriveWholeAndInvalidBytesEndConnection) {
  constexpr size_t kChunk = 512;
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return static_cast<size_t>(random()) % end; };
  for (int round = 0; round < 300; ++round) {
    // Memory of channel 1 is posted first, of channel 2 for each frame when the connection waits for it, or at the end.
    std::string bytes, data[3], received[3];
    std::vector<FrameHeader> sent;
    for (size_t i = 0; i < 12; ++i) {
      FrameHeader header = with([&](FrameHeader& h) { h.seq = i; }, i % 3 == 0 ? FrameType::kOffer : FrameType::kData);
      std::string body(1 + below(i % 3 == 0 ? kRoom : kChunk), static_cast<char>('a' + i));
      (i % 3 == 0 ? header.length : header.data_length) = static_cast<uint32_t>(body.size());
      header.channel = i % 3;
      header.offset = data[i % 3].size();
      data[i % 3] += body;
      bytes += std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + body;
      sent.push_back(header);
    }
    const bool is_valid = round % 2 == 0;
    const bool posts_late = round % 4 < 2;
    const size_t changed = below(bytes.size());
    if (!is_valid) bytes[changed] = static_cast<char>(bytes[changed] + 1 + static_cast<char>(below(255)));

    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    FileDescriptor peer(ends[1]);
    Connection connection(FileDescriptor(ends[0]), 3, {.chunk_bytes = kChunk}, kRoom);
    for (size_t channel : {1, 2}) received[channel].resize(data[channel].size());
    const auto post = [&](const FrameHeader& h, size_t num_bytes) {
      auto* const memory = reinterpret_cast<std::byte*>(received[h.channel].data() + h.offset);
      connection.post(h.channel, 0, h.offset, memory, static_cast<int64_t>(num_bytes));
    };
    post(sent[1], data[1].size());
    if (round % 8 >= 4) connection.expect_end();  // data may arrive before its memory is posted, in pieces too
    std::vector<Frame> frames;
    size_t next = 2;
    for (size_t at = 0; at < bytes.size() || peer || next < sent.size();) {
      const size_t n = std::min(1 + below(900), bytes.size() - at);
      if (n == 0) peer.reset();
      if (n > 0) {
        ASSERT_EQ(send(peer.get(), bytes.data() + at, n, 0), static_cast<ssize_t>(n));
      }
      at += n;
      connection.set_readable(n == 0);
      for (size_t before = frames.size() + 1; before != frames.size();) {
        before = frames.size();
        connection.receive(frames);
      }
      if (next >= sent.size() || (posts_late && peer)) continue;
      post(sent[next], sent[next].data_length);
      next += 3;
    }
    connection.receive(frames);
    EXPECT_NE(connection.ended(), "");
    if (!is_valid) continue;
    EXPECT_EQ(connection.ended(), "died (its connection closed)");
    for (size_t channel : {1, 2}) EXPECT_EQ(received[channel], data[channel]);
    ASSERT_EQ(frames.size(), sent.size());
    size_t num_data = 0;
    for (const Frame& frame : frames) {
      EXPECT_EQ(frame.peer, 3);
      num_data += static_cast<size_t>(frame.data_bytes);
      EXPECT_TRUE(data[0].starts_with(frame.payload));
      data[0].erase(0, frame.payload.size());
    }
    EXPECT_EQ(num_data, data[1].size() + data[2].size());
    EXPECT_EQ(data[0], "");
  }
}

TEST(ConnectionFrames, DataOutsidePostedMemoryEndsConnection) {
  for (const auto& [offset, length] : {std::pair{0, 9}, {4, 4}, {1, 8}, {-8, 8}}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const FileDescriptor peer(ends[1]);
    Connection connection(FileDescriptor(ends[0]), 3, {.chunk_bytes = 64}, kRoom);
    std::string memory(24, ' ');
    connection.post(0, 0, 0, reinterpret_cast<std::byte*>(memory.data() + 8), 8);
    FrameHeader header = with([](FrameHeader& h) { h.seq = 0; }, FrameType::kData);
    header.offset = static_cast<uint64_t>(offset);
    header.data_length = static_cast<uint32_t>(length);
    const std::string bytes = std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + "012345678";
    ASSERT_EQ(send(peer.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    std::vector<Frame> frames;
    connection.receive(frames);
    EXPECT_EQ(connection.ended(), "gloo: received unexpected data");
    EXPECT_EQ(memory, std::string(24, ' '));
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
      {1, 1, int64_t{1} << 32, "with an invalid tag"},
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
}

TEST(FramePayloads, LongNamesAreTruncated) {
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
}

}}}}  // namespace tandem::v0::distributed::network
