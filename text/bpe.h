// Byte-level byte-pair encoding: the tokenizer of GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace text {

/// Options of BpeTokenizer.
struct BpeTokenizerOptions {
  /// Tokens of the vocabulary that encode() searches for in the text before it divides the text into words. If several
  /// special tokens begin at the same byte, the longest one is used. With {} their characters are ordinary text, which
  /// is safer for untrusted texts.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

/// Byte-level byte-pair encoding with the files vocab.json and merges.txt of GPT-2, as the class Tokenizer(BPE) with
/// ByteLevel(add_prefix_space=False) of Hugging Face's tokenizers: A. Radford et al., "Language models are unsupervised
/// multitask learners", 2019; R. Sennrich et al., "Neural machine translation of rare words with subword units", ACL
/// 2016.
///
///     const text::BpeTokenizer tokenizer("gpt2/vocab.json", "gpt2/merges.txt");
///     std::vector<int64_t> ids = tokenizer.encode("Hello, world");   // 15496, 11, 995
///     tokenizer.decode(ids);                                         // "Hello, world"
///
/// encode() divides the text into words, by GPT-2's pattern with the letters and numbers of Unicode 14. Each word
/// begins as a sequence of single-byte tokens. encode() then repeatedly merges the pair of neighboring tokens with the
/// earliest line in merges.txt, until no line applies. A text of n bytes takes O(n log n) time. Every sequence of bytes
/// can be encoded, and decode(encode(x)) == x.
///
/// Thread-safe; cheap to copy.
class TANDEM_API BpeTokenizer {
 public:
  /// Type of the options.
  using Options = BpeTokenizerOptions;

  /// Reads `vocab_path`, a JSON object from tokens to the numbers 0 .. size - 1 (a byte order mark before it is
  /// ignored), and `merges_path`, two tokens per line; bytes are written as GPT-2's printable characters. Throws
  /// IoError if a file cannot be read or does not have this format, if a byte has no token, or if the result of a merge
  /// is not in the vocabulary; ValueError if a special token is not in the vocabulary.
  BpeTokenizer(const std::string& vocab_path, const std::string& merges_path, Options options = {});

  int64_t size() const;  ///< number of tokens
  /// The tokens of `text`.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The bytes of the tokens, including special tokens. If the tokens are a part of a text, the bytes may end inside a
  /// character. Throws IndexError, with the token and its position, if a token is outside [0, size()).
  std::string decode(std::span<const int64_t> tokens) const;
  /// The number of a token, as it is written in vocab.json; nullopt if it is not in the vocabulary.
  std::optional<int64_t> token_to_id(const std::string& token) const;

 private:
  struct Model;
  std::shared_ptr<const Model> model_;
};

}}}  // namespace tandem::v0::text
