#include <tandem/distributed/rendezvous/wire.h>

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include <tandem/tests/support/error_text.h>

namespace {

namespace td = tandem;
using namespace td::distributed::wire;
using td::testing::error_text;

TEST(StoreProtocol, FramesAreReassembledAfterAnySplit) {
  const std::string payload("x\0y", 3);
  const std::string bytes = encode(FrameType::kSet, 7, payload) + encode(FrameType::kGoodbye, 0xfffffffe, "");
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameBuffer buffer;
    std::vector<Frame> frames;
    for (const std::string& part : {bytes.substr(0, cut), bytes.substr(cut)}) {
      buffer.append(part.data(), part.size());
      while (auto frame = buffer.next(kMaxPayload)) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[0].type, FrameType::kSet);
    EXPECT_EQ(frames[0].id, 7u);
    EXPECT_EQ(frames[0].payload, payload);
    EXPECT_EQ(frames[1].type, FrameType::kGoodbye);
    EXPECT_EQ(frames[1].id, 0xfffffffeu);
    EXPECT_EQ(buffer.size(), 0u);
  }
}

TEST(StoreProtocol, FrameSizeLimitIsInclusive) {
  const std::string bytes = encode(FrameType::kSet, 1, "12345");
  FrameBuffer fits;
  fits.append(bytes.data(), bytes.size());
  EXPECT_TRUE(fits.next(5));
  FrameBuffer too_long;
  too_long.append(bytes.data(), sizeof(FrameHeader));  // the header suffices for rejection
  EXPECT_EQ(error_text<td::IoError>([&] { too_long.next(4); }), "store: received a frame of 5 bytes; at most 4");
  EXPECT_EQ(error_text<td::ValueError>([] { encode(FrameType::kSet, 1, std::string(kMaxPayload + 1, 'x')); }),
            "store: a frame has 16777281 bytes; the limit is 16777280");
}

TEST(StoreProtocol, PayloadFieldsRoundTrip) {
  const std::string binary("\0\xff", 2);
  const std::string bytes =
      PayloadWriter().number(std::numeric_limits<int64_t>::min()).text(binary).text("").number(-1).take();
  PayloadReader reader(bytes);
  EXPECT_EQ(reader.number(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reader.text(), binary);
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(error_text<td::IoError>([&] { reader.finish(); }), "store: a frame is longer than its contents");
  EXPECT_EQ(reader.number(), -1);
  reader.finish();
  EXPECT_EQ(error_text<td::IoError>([&] { reader.number(); }), "store: a frame is shorter than its contents");
}

TEST(StoreProtocol, InvalidTextLengthsAreErrors) {
  for (const int64_t length : {int64_t{4}, std::numeric_limits<int64_t>::max()}) {
    const std::string bytes = PayloadWriter().number(length).take() + "abc";
    PayloadReader reader(bytes);
    EXPECT_EQ(error_text<td::IoError>([&] { reader.text(); }), "store: a frame is shorter than its contents");
  }
  const std::string bytes = PayloadWriter().number(-1).take();
  PayloadReader reader(bytes);
  EXPECT_EQ(error_text<td::IoError>([&] { reader.text(); }), "store: a frame contains a string of negative length");
}

TEST(StoreToken, ComparisonRejectsAnyDifference) {
  const std::string token = random_token();
  ASSERT_EQ(token.size(), kTokenBytes);
  EXPECT_TRUE(equal_constant_time(token, std::string(token)));
  for (size_t i = 0; i < token.size(); ++i) {
    for (const int bit : {1, 128}) {
      std::string other = token;
      other[i] = static_cast<char>(other[i] ^ bit);
      EXPECT_FALSE(equal_constant_time(token, other)) << i;
    }
  }
  EXPECT_FALSE(equal_constant_time(token, token.substr(1)));
  EXPECT_FALSE(equal_constant_time(token, ""));
  EXPECT_TRUE(equal_constant_time("", ""));
}

TEST(StoreToken, HexEncodingRoundTrips) {
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    const std::string token = random_token();
    EXPECT_EQ(token_from_hex(token_to_hex(token)), token);
    seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(token_to_hex(std::string("\x00\x7f\xff", 3)), "007fff");
  EXPECT_EQ(error_text<td::ValueError>([] { token_from_hex("abc"); }),
            "TANDEM_TOKEN: expected 64 hexadecimal digits, got 3 characters");
  EXPECT_EQ(error_text<td::ValueError>([] { token_from_hex(std::string(63, 'a') + "g"); }),
            "TANDEM_TOKEN: expected 64 hexadecimal digits");
}

}  // namespace
