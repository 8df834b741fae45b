// Files of token numbers without a header, as nanoGPT's train.bin.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace text {

/// Storage type of a token: little-endian, two or four bytes.
enum class TokenType : int8_t { kUInt16, kUInt32 };

/// A file of token numbers without a header, mapped into memory. Processes share its pages. Besides the pages of the
/// current read, each process keeps about 16 MiB resident, regardless of the file's size. Thread-safe; cheap to copy.
class TANDEM_API TokenFile {
 public:
  /// Maps the file into memory without reading it. Throws IoError if it cannot be read or if its size is not a multiple
  /// of the size of a token. It must not be truncated while it is mapped: that would end the process by SIGBUS, without
  /// an error that names the file.
  TokenFile(const std::string& path, int64_t vocabulary_size, TokenType type = TokenType::kUInt16);

  int64_t size() const;  ///< number of tokens
  /// Copies the tokens from number `begin` on. Throws IndexError unless 0 <= begin <= size() - out.size(); IoError,
  /// with its position, for a token that is not less than vocabulary_size.
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
  struct Mapping;
  std::shared_ptr<const Mapping> mapping_;
};

/// Options of write_tokens.
struct WriteTokensOptions {
  TokenType type = TokenType::kUInt16;  ///< storage type of a token
  bool append = false;                  ///< append to the file instead of replacing it
};

/// Writes tokens to a file without a header. Throws ValueError, with its position, for a token that is negative or too
/// large for the type, before it writes; IoError if the file cannot be written.
TANDEM_API void write_tokens(const std::string& path, std::span<const int64_t> tokens, WriteTokensOptions options = {});

}}}  // namespace tandem::v0::text
