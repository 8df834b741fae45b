// Text and token files: what language models are trained on.
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

/// The bytes of a regular file.  Throws IoError with the path and the system's reason.
TANDEM_API std::string read_text(const std::string& path);

/// The distinct bytes of a text in ascending order, numbered from 0.  Bytes and not characters of some encoding, so that
/// every file is a text, decode(encode(x)) is x, and there are at most 256; of ASCII text it is the usual vocabulary of
/// characters.
class TANDEM_API CharVocabulary {
 public:
  /// The vocabulary of `text`.
  explicit CharVocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }  ///< number of distinct bytes
  /// Byte i is what number i stands for.
  const std::string& characters() const { return characters_; }
  /// Throws ValueError naming the first byte that is not in the vocabulary and its place.
  std::vector<uint16_t> encode(std::string_view text) const;
  /// Throws IndexError naming the first number outside [0, size()) and its place.
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  std::string characters_;
  std::array<int16_t, 256> number_of_;  ///< -1: not in the vocabulary
};

/// The tokens of a file of 16-bit little-endian numbers without a header.  Throws IoError naming the file if it cannot
/// be read, has an odd size, or holds a number that is not below `vocabulary_size` (with its place).
TANDEM_API std::vector<uint16_t> read_tokens(const std::string& path, int64_t vocabulary_size);

/// Options of TokenDataset and CharTextDataset.
struct TokenOptions {
  int64_t context = 128;  ///< tokens of an input
  int64_t stride = 1;     ///< item i begins at token i * stride
};

/// Windows of a sequence of tokens for the prediction of the next one: item i is, as `image`, int64 [context], the
/// tokens from i * stride on, and, as `label`, int64 [context], those one place further.
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
  kTrain,       ///< the first nine tenths of the text
  kValidation,  ///< the rest
};

/// TokenDataset of a part of a text, in the vocabulary of the whole text:
///
///     const std::string text = data::read_text(path);
///     data::CharTextDataset train(text, data::TextSplit::kTrain, {.context = 128});
///     data::CharTextDataset validation(text, data::TextSplit::kValidation, {.context = 128, .stride = 128});
class TANDEM_API CharTextDataset : public Dataset {
 public:
  /// Throws what TokenDataset throws if the part is too short.
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
