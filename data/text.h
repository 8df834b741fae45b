// Text and token files, for language models.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Reads the bytes of a regular file. Throws IoError with the path and the system's reason.
TANDEM_API std::string read_text(const std::string& path);

/// A vocabulary of the distinct bytes of a text, numbered from 0 in ascending order. Works for every file, and has at
/// most 256 tokens; for ASCII text the tokens are the characters. decode(encode(x)) == x.
class TANDEM_API CharVocabulary {
 public:
  /// The vocabulary of `text`.
  explicit CharVocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }  ///< number of distinct bytes
  /// Byte i is the byte of token i.
  const std::string& characters() const { return characters_; }
  /// Throws ValueError, with the byte and its position, if a byte is not in the vocabulary.
  std::vector<uint16_t> encode(std::string_view text) const;
  /// Throws IndexError, with the token and its position, if a token is outside [0, size()).
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  std::string characters_;
  std::array<int16_t, 256> number_of_;  ///< -1: not in the vocabulary
};

/// Reads a file of 16-bit little-endian tokens without a header. Throws IoError, with the file, if it cannot be read,
/// has an odd size, or has a token that is not less than `vocabulary_size` (with its position).
TANDEM_API std::vector<uint16_t> read_tokens(const std::string& path, int64_t vocabulary_size);

/// Options of TokenDataset and CharTextDataset.
struct TokenOptions {
  int64_t context = 128;  ///< number of tokens of an input
  int64_t stride = 1;     ///< item i begins at token i * stride
};

/// Windows of a token sequence for next-token prediction. `image` of item i, int64 [context], has the tokens from
/// position i * stride on; `label`, int64 [context], has the tokens from position i * stride + 1 on.
class TANDEM_API TokenDataset : public Dataset {
 public:
  /// Throws ValueError unless context and stride are at least 1 and there are more than `context` tokens.
  explicit TokenDataset(std::vector<uint16_t> tokens, TokenOptions options = {});

  int64_t size() const override;
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  void write_item(int64_t index, int64_t* input, int64_t* target) const;

  std::vector<uint16_t> tokens_;
  TokenOptions options_;
};

/// Part of a text.
enum class TextSplit {
  kTrain,       ///< the first 90 % of the text
  kValidation,  ///< the rest
};

/// A TokenDataset of one split of a text, with the vocabulary of the whole text:
///
///     const std::string text = data::read_text(path);
///     data::CharTextDataset train(text, data::TextSplit::kTrain, {.context = 128});
///     data::CharTextDataset validation(text, data::TextSplit::kValidation, {.context = 128, .stride = 128});
class TANDEM_API CharTextDataset : public Dataset {
 public:
  /// Throws the errors of TokenDataset, for instance if the split is too short.
  CharTextDataset(std::string_view text, TextSplit split, TokenOptions options = {});

  const CharVocabulary& vocabulary() const { return vocabulary_; }  ///< of the whole text
  int64_t size() const override { return tokens_.size(); }
  Example get(int64_t index) const override { return tokens_.get(index); }
  Batch get_batch(std::span<const int64_t> indices) const override { return tokens_.get_batch(indices); }

 private:
  CharVocabulary vocabulary_;
  TokenDataset tokens_;
};

}}}  // namespace tandem::v0::data
