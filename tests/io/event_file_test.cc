#include <tandem/io/event_file.h>

#include <sys/resource.h>
#include <unistd.h>

#include <bit>

#include <tandem/io/crc32c.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::io::EventFile;
using td::testing::read_file;
using td::testing::write_file;

namespace {

/// A field of a protocol-buffer message.
struct Field {
  uint64_t key = 0;  // field number * 8 + wire type
  uint64_t number = 0;
  std::string bytes;
};

template <class T>
T take(std::string& text) {
  T value;
  EXPECT_GE(text.size(), sizeof value);
  std::memcpy(&value, text.data(), sizeof value);
  text.erase(0, sizeof value);
  return value;
}

uint64_t take_varint(std::string& text) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(text);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::vector<Field> fields_of(std::string text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    Field field;
    field.key = take_varint(text);
    switch (field.key % 8) {
      case 0: field.number = take_varint(text); break;
      case 1: field.number = take<uint64_t>(text); break;
      case 5: field.number = take<uint32_t>(text); break;
      default:
        field.number = take_varint(text);
        field.bytes = text.substr(0, field.number);
        text.erase(0, field.number);
    }
    fields.push_back(field);
  }
  return fields;
}

/// The events of a file. Expects correct checksums.
std::vector<std::vector<Field>> events_of(const std::string& path) {
  std::vector<std::vector<Field>> events;
  std::string text = read_file(path);
  while (!text.empty()) {
    EXPECT_GE(text.size(), 16u);
    const std::string length_bytes = text.substr(0, 8);
    const auto length = take<uint64_t>(text);
    EXPECT_EQ(take<uint32_t>(text), td::io::masked_crc32c(length_bytes));
    const std::string event = text.substr(0, length);
    text.erase(0, length);
    EXPECT_EQ(take<uint32_t>(text), td::io::masked_crc32c(event));
    events.push_back(fields_of(event));
  }
  return events;
}

TEST(Crc32c, MatchesPublishedTestVectors) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(td::io::crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(td::io::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(td::io::crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(td::io::masked_crc32c(""), 0xa282ead8u);
}

TEST(EventFile, ScalarsAreWrittenInTensorBoardFormat) {
  const td::testing::TemporaryFolder folder;
  const auto before = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string path;
  {
    EventFile events(folder / "runs/first");
    path = events.path();
    events.add_scalar("loss/train", 0.1, 7);
    events.add_scalar("\xc3\xa9", -std::numeric_limits<double>::infinity(), int64_t{1} << 40);
    events.resume(300);
  }
  const auto after = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_TRUE(path.starts_with(folder / "runs/first/events.out.tfevents.")) << path;
  EXPECT_TRUE(path.ends_with("." + std::to_string(getpid()) + ".0")) << path;

  const auto events = events_of(path);
  ASSERT_EQ(events.size(), 4u);
  for (const auto& event : events) {
    ASSERT_GE(event.size(), 2u);
    EXPECT_EQ(event[0].key, 1u * 8 + 1);  // wall_time: double
    const auto time = std::bit_cast<double>(event[0].number);
    EXPECT_GE(time, before);
    EXPECT_LE(time, after);
  }
  EXPECT_EQ(events[0][1].key, 3u * 8 + 2);  // file_version: string
  EXPECT_EQ(events[0][1].bytes, "brain.Event:2");

  const auto check_scalar = [](const std::vector<Field>& event, uint64_t step, const std::string& tag, float value) {
    ASSERT_EQ(event.size(), 3u);
    EXPECT_EQ(event[1].key, 2u * 8 + 0);  // step: int64
    EXPECT_EQ(event[1].number, step);
    EXPECT_EQ(event[2].key, 5u * 8 + 2);  // summary
    const auto summary = fields_of(event[2].bytes);
    ASSERT_EQ(summary.size(), 1u);
    EXPECT_EQ(summary[0].key, 1u * 8 + 2);  // value
    const auto scalar = fields_of(summary[0].bytes);
    ASSERT_EQ(scalar.size(), 2u);
    EXPECT_EQ(scalar[0].key, 1u * 8 + 2);  // tag
    EXPECT_EQ(scalar[0].bytes, tag);
    EXPECT_EQ(scalar[1].key, 2u * 8 + 5);  // simple_value: float
    EXPECT_EQ(scalar[1].number, std::bit_cast<uint32_t>(value));
  };
  check_scalar(events[1], 7, "loss/train", 0.1f);
  check_scalar(events[2], uint64_t{1} << 40, "\xc3\xa9", -std::numeric_limits<float>::infinity());

  EXPECT_EQ(events[3][1].number, 300u);
  EXPECT_EQ(events[3][2].key, 7u * 8 + 2);  // session_log
  const auto log = fields_of(events[3][2].bytes);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].key, 1u * 8 + 0);  // status
  EXPECT_EQ(log[0].number, 1u);       // START
}

TEST(EventFile, EachInstanceHasItsOwnFile) {
  const td::testing::TemporaryFolder folder;
  const EventFile first(folder.path());
  const EventFile second(folder.path());
  EXPECT_NE(first.path(), second.path());
}

TEST(EventFile, WriteFailureIsLoggedExactlyOnce) {
  const td::testing::TemporaryFolder folder;
  write_file(folder / "runs", "a file in the way");
  ::testing::internal::CaptureStderr();
  {
    EventFile events(folder / "runs");
    for (int64_t step = 0; step < 3; ++step) events.add_scalar("loss", 1, step);
  }
  std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("EventFile: cannot create '" + (folder / "runs/events.out.tfevents.")), std::string::npos) << log;
  EXPECT_TRUE(log.ends_with(": Not a directory; later events are dropped\n")) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);

  EventFile events(folder / "good");
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const struct rlimit small = {4000, old.rlim_max};  // the captured stderr is a file too
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ::testing::internal::CaptureStderr();
  for (int64_t step = 0; step < 9; ++step) events.add_scalar(std::string(1000, 'x'), 1, step);
  fflush(stderr);
  setrlimit(RLIMIT_FSIZE, &old);
  log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(log.ends_with(": File too large; later events are dropped\n")) << log;
  EXPECT_NE(log.find("EventFile: cannot write '" + events.path()), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

TEST(EventFile, NonUtf8TagsAreRejected) {
  const td::testing::TemporaryFolder folder;
  EventFile events(folder.path());
  EXPECT_ERROR(td::ValueError, events.add_scalar("\xff", 1, 0), "EventFile: the tag '\xff' is not valid UTF-8");
}

}  // namespace
