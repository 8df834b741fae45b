// A file is a sequence of records: the number of bytes (64 bits), the checksum of that number, the bytes, and the
// checksum of the bytes. The bytes are an Event of TensorFlow's event.proto in the protocol-buffer encoding.

#include <tandem/io/event_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/log.h>
#include <tandem/io/crc32c.h>
#include <tandem/io/json.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian; values are written without conversion");

// Field numbers of event.proto and summary.proto.
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kEventSessionLog = 7;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimpleValue = 2;
constexpr int kSessionLogStatus = 1;
constexpr uint64_t kSessionStart = 1;

// Wire types of the protocol-buffer encoding.
constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kBytes = 2;
constexpr int kFixed32 = 5;

template <class T>
void append_raw(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, int field, int wire_type) {
  append_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

void append_varint_field(std::string& out, int field, uint64_t value) {
  append_key(out, field, kVarint);
  append_varint(out, value);
}

void append_bytes_field(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

/// An Event that has only its time.
std::string new_event() {
  const std::chrono::duration<double> since_1970 = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, kEventWallTime, kFixed64);
  append_raw(event, since_1970.count());
  return event;
}

std::string system_reason(int error) { return std::generic_category().message(error); }

}  // namespace

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (int k = 0; descriptor_ < 0; ++k) {
    path_ =
        std::filesystem::path(folder) / str("events.out.tfevents.", seconds, ".", host.data(), ".", ::getpid(), ".", k);
    descriptor_ = above_standard(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (descriptor_ < 0 && errno != EEXIST) {
      disable(str("cannot create '", path_, "': ", system_reason(errno)));
      return;
    }
  }
  std::string event = new_event();
  append_bytes_field(event, kEventFileVersion, "brain.Event:2");
  append(event);
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::add_scalar(std::string_view tag, double value, int64_t step) {
  TANDEM_CHECK(ValueError, is_valid_utf8(tag), "EventFile: the tag '", tag, "' is not valid UTF-8");
  std::string scalar;
  append_bytes_field(scalar, kValueTag, tag);
  append_key(scalar, kValueSimpleValue, kFixed32);
  append_raw(scalar, static_cast<float>(value));
  std::string summary;
  append_bytes_field(summary, kSummaryValue, scalar);
  std::string event = new_event();
  append_varint_field(event, kEventStep, static_cast<uint64_t>(step));
  append_bytes_field(event, kEventSummary, summary);
  append(event);
}

void EventFile::resume(int64_t step) {
  std::string log;
  append_varint_field(log, kSessionLogStatus, kSessionStart);
  std::string event = new_event();
  append_varint_field(event, kEventStep, static_cast<uint64_t>(step));
  append_bytes_field(event, kEventSessionLog, log);
  append(event);
}

/// Writes one record with one call, so that a concurrent reader does not see a partial record.
void EventFile::append(const std::string& event) {
  if (descriptor_ < 0) return;
  std::string record;
  append_raw(record, static_cast<uint64_t>(event.size()));
  append_raw(record, masked_crc32c(record));
  record += event;
  append_raw(record, masked_crc32c(event));
  const int error = write_all(descriptor_, record);
  if (error != 0) disable(str("cannot write '", path_, "': ", system_reason(error)));
}

void EventFile::disable(const std::string& reason) {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  log(LogLevel::kWarning, "EventFile: ", reason, "; later events are dropped");
}

}}}  // namespace tandem::v0::io
