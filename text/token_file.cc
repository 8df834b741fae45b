#include <tandem/text/token_file.h>

#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace text {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and copied as they are");

constexpr int64_t kMaxResident = 16 << 20;  // bytes
constexpr int64_t kPerRead = 64 << 10;      // bytes that Linux maps around a page that is used (fault_around_bytes)

int64_t width_of(TokenType type) { return type == TokenType::kUInt16 ? 2 : 4; }

}  // namespace

struct TokenFile::Mapping {
  template <class T>
  void read(int64_t begin, std::span<int64_t> out) const {
    const std::byte* from = bytes.get() + begin * int64_t{sizeof(T)};
    for (size_t i = 0; i < out.size(); ++i) {
      T token = 0;
      std::memcpy(&token, from + i * sizeof(T), sizeof(T));
      TANDEM_CHECK(IoError, token < vocabulary_size, "TokenFile: '", path, "': token ", begin + static_cast<int64_t>(i),
                   " is ", token, ", expected 0 <= token < vocabulary_size ", vocabulary_size);
      out[i] = token;
    }
  }

  std::string path;
  std::shared_ptr<std::byte> bytes;
  int64_t num_bytes;
  int64_t vocabulary_size;
  TokenType type;
  mutable std::atomic<int64_t> resident = 0;  ///< bytes that may be resident; at least the actual number
};

TokenFile::TokenFile(const std::string& path, int64_t vocabulary_size, TokenType type) {
  const InputFile file("TokenFile", path);
  TANDEM_CHECK(IoError, file.size() % width_of(type) == 0, "TokenFile: '", path, "' has ", file.size(),
               " bytes, expected ", width_of(type), " for each token");
  mapping_.reset(new Mapping{path, file.map(), file.size(), vocabulary_size, type});
}

int64_t TokenFile::size() const { return mapping_->num_bytes / width_of(mapping_->type); }

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TANDEM_CHECK(IndexError, begin >= 0 && begin <= size() - count, "TokenFile: begin is ", begin, " for ", count,
               " tokens, expected 0 <= begin <= ", size() - count);
  if (mapping_->type == TokenType::kUInt16) {
    mapping_->read<uint16_t>(begin, out);
  } else {
    mapping_->read<uint32_t>(begin, out);
  }
  const int64_t num_bytes = count * width_of(mapping_->type) + kPerRead;
  if (mapping_->resident.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes >= kMaxResident) {
    mapping_->resident.store(0, std::memory_order_relaxed);
    // Other threads may read: the system maps the pages again.
    ::madvise(mapping_->bytes.get(), static_cast<size_t>(mapping_->num_bytes), MADV_DONTNEED);
  }
}

void write_tokens(const std::string& path, std::span<const int64_t> tokens, WriteTokensOptions options) {
  const auto width = static_cast<size_t>(width_of(options.type));
  const int64_t end = int64_t{1} << 8 * width;
  std::string bytes(tokens.size() * width, '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    TANDEM_CHECK(ValueError, tokens[i] >= 0 && tokens[i] < end, "write_tokens: token ", i, " is ", tokens[i],
                 ", expected 0 <= token < ", end);
    std::memcpy(bytes.data() + i * width, &tokens[i], width);
  }
  write_file("write_tokens", path, bytes, options.append ? WriteMode::kAppend : WriteMode::kReplace);
}

}}}  // namespace tandem::v0::text
