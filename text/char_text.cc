#include <tandem/text/char_text.h>

#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace text {

namespace {

/// The bytes of the split; the number of training bytes is rounded down.
std::string_view part_of(std::string_view text, TextSplit split) {
  const size_t border = text.size() / 10 * 9 + text.size() % 10 * 9 / 10;
  return split == TextSplit::kTrain ? text.substr(0, border) : text.substr(border);
}

}  // namespace

std::string read_text(const std::string& path) { return InputFile("read_text", path).text(); }

CharVocabulary::CharVocabulary(std::string_view text) {
  std::array<bool, 256> occurs = {};
  for (const char c : text) occurs[static_cast<uint8_t>(c)] = true;
  number_of_.fill(-1);
  for (size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    number_of_[byte] = static_cast<int16_t>(characters_.size());
    characters_ += static_cast<char>(byte);
  }
}

std::vector<uint16_t> CharVocabulary::encode(std::string_view text) const {
  std::vector<uint16_t> tokens(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    TANDEM_CHECK(ValueError, number_of_[byte] >= 0, "CharVocabulary: the byte ", int{byte}, " at position ", i,
                 " is not in the vocabulary");
    tokens[i] = static_cast<uint16_t>(number_of_[byte]);
  }
  return tokens;
}

std::string CharVocabulary::decode(std::span<const int64_t> tokens) const {
  std::string text(tokens.size(), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    TANDEM_CHECK(IndexError, tokens[i] >= 0 && tokens[i] < size(), "CharVocabulary: token ", i, " is ", tokens[i],
                 ", expected 0 <= token < ", size());
    text[i] = characters_[static_cast<size_t>(tokens[i])];
  }
  return text;
}

CharTextDataset::CharTextDataset(std::string_view text, TextSplit split, TokenOptions options)
    : vocabulary_(text), tokens_(vocabulary_.encode(part_of(text, split)), options) {}

}}}  // namespace tandem::v0::text
