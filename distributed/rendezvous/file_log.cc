#include <tandem/distributed/rendezvous/file_log.h>

#include <cstring>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace file_log {

namespace {

struct RecordHeader {
  uint64_t checksum;  // of all following bytes
  uint32_t kind;
  uint32_t key_length;
  uint64_t value_length;
};
static_assert(sizeof(RecordHeader) == 24);

uint64_t checksum_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string encode(const Record& record) {
  wire::check_size(record.key, record.value);
  RecordHeader header{0, static_cast<uint32_t>(record.kind), static_cast<uint32_t>(record.key.size()),
                      record.value.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += record.key;
  bytes += record.value;
  header.checksum = checksum_of(std::string_view(bytes).substr(sizeof(header.checksum)));
  std::memcpy(bytes.data(), &header.checksum, sizeof(header.checksum));
  return bytes;
}

size_t parse(std::string_view bytes, FunctionRef<void(const Record& record)> f) {
  size_t done = 0;
  for (;;) {
    const std::string_view rest = bytes.substr(done);
    RecordHeader header{};
    if (rest.size() < sizeof(header)) return done;
    std::memcpy(&header, rest.data(), sizeof(header));
    const size_t room = rest.size() - sizeof(header);
    if (header.key_length > room || header.value_length > room - header.key_length) return done;
    const size_t length = sizeof(header) + header.key_length + static_cast<size_t>(header.value_length);
    if (header.checksum != checksum_of(rest.substr(sizeof(header.checksum), length - sizeof(header.checksum)))) {
      return done;
    }
    f({static_cast<RecordKind>(header.kind), std::string(rest.substr(sizeof(header), header.key_length)),
       std::string(rest.substr(sizeof(header) + header.key_length, static_cast<size_t>(header.value_length)))});
    done += length;
  }
}

}}}}  // namespace tandem::v0::distributed::file_log
