#include <tandem/distributed/backends/shm/segment.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/math.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Layout::Layout(int world_size, const Tuning& tuning) {
  const size_t page = page_bytes();
  // A slice has at least one cache line.
  const int64_t round_bytes = std::max(tuning.chunk_bytes, static_cast<int64_t>(kLine) * world_size);
  ring_bytes = round_up(static_cast<size_t>(round_bytes * tuning.slots), page);
  parts = round_up(sizeof(SegmentHeader), kLine);
  parts_bytes = 2 * sizeof(PostedPart) * static_cast<size_t>(world_size);
  slots = round_up(parts + kNumBuffers * parts_bytes, page);
  staging = slots + round_up(static_cast<size_t>(kNumBuffers * tuning.slot_bytes), page);
  results = staging + kNumBuffers * ring_bytes;
  channels = results + ring_bytes;
  pieces = round_up(sizeof(Channel), kLine);
  small = round_up(pieces + sizeof(Piece) * static_cast<size_t>(tuning.pieces), page);
  ring = small + static_cast<size_t>(tuning.small_bytes) * kMaxAnnounced;
  channel_bytes = round_up(ring + static_cast<size_t>(tuning.piece_bytes * tuning.pieces), page);
  inboxes = channels + channel_bytes * static_cast<size_t>(world_size);
  total = round_up(inboxes + sizeof(Inbox) * static_cast<size_t>(world_size), page);
}

void copy_text(char* out, std::string_view text, size_t room) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(out, text.data(), n);
  out[n] = 0;
}

void write_call_info(CallInfo& call_info, const Shape& shape, std::string_view name,
                     const std::source_location& where) {
  call_info.shape = shape;
  call_info.line = where.line();
  copy_text(call_info.name, name, sizeof(call_info.name));
  copy_text(call_info.file, where.file_name(), sizeof(call_info.file));
}

void LastCollective::write(const Collective& collective, bool same_text, int64_t now_ns) {
  const int64_t last = version.load(std::memory_order_relaxed);
  version.store(last + 1, std::memory_order_relaxed);
  // Release: a reader that sees one of these values also sees that the version is odd, or a later version.
  seq.store(collective.seq, std::memory_order_release);
  ns.store(now_ns, std::memory_order_release);
  if (!same_text) {
    char bytes[sizeof(what)] = {static_cast<char>(collective.kind)};
    copy_text(bytes + 1, collective.name, sizeof(bytes) - 1);
    for (size_t i = 0; i < std::size(what); ++i) {
      uint64_t word;
      std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
      what[i].store(word, std::memory_order_release);
    }
  }
  version.store(last + 2, std::memory_order_release);
}

LastCollective::Seen LastCollective::read() const {
  Seen seen{};
  char bytes[sizeof(what) + 1] = {};
  // A rank whose data changes during every attempt makes progress, so a torn text does no harm.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int64_t before = version.load(std::memory_order_acquire);
    seen.seq = seq.load(std::memory_order_acquire);
    seen.ns = ns.load(std::memory_order_acquire);
    for (size_t i = 0; i < std::size(what); ++i) {
      const uint64_t word = what[i].load(std::memory_order_acquire);
      std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) break;
  }
  if (seen.seq == 0) return seen;
  seen.what = to_string(static_cast<CollectiveKind>(bytes[0]));
  if (bytes[1] != 0) seen.what += str(" '", bytes + 1, "'");
  return seen;
}

Doorbell& Mapping::doorbell(int rank) const {
  return *reinterpret_cast<Doorbell*>(doorbells + static_cast<size_t>(rank) * page_bytes());
}

Mapping::~Mapping() {
  for (std::byte* segment : segments) {
    if (segment != nullptr) munmap(segment, segment_bytes);
  }
  if (doorbells != nullptr) munmap(doorbells, segments.size() * page_bytes());
}

FileDescriptor create_shared_file(const char* name, size_t num_bytes) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  TANDEM_CHECK(CommError, bool{file}, "shared memory: memfd_create failed: ", std::strerror(errno));
  const FileSizeSignalGuard guard;  // the limit also applies to files in memory
  TANDEM_CHECK(CommError, ftruncate(file.get(), static_cast<off_t>(num_bytes)) == 0, "shared memory: cannot allocate ",
               num_bytes, " bytes: ", std::strerror(errno));
  return file;
}

void seal_writes(const FileDescriptor& file) {
  // Linux before 5.1 does not support this seal. Peers map the memory read-only in any case.
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
}

std::byte* map_memory(int fd, size_t num_bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, num_bytes, protection, flags, fd, 0);
  TANDEM_CHECK(CommError, memory != MAP_FAILED, "shared memory: mapping ", num_bytes, " bytes failed ",
               resource_limit_text(errno));
  return static_cast<std::byte*>(memory);
}

}}}  // namespace tandem::v0::distributed::shm
