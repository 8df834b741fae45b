#include <tandem/data/text.h>

#include <bit>
#include <utility>

#include <tandem/base/file.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and copied as they are");

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

std::vector<uint16_t> read_tokens(const std::string& path, int64_t vocabulary_size) {
  const InputFile file("read_tokens", path);
  TANDEM_CHECK(IoError, file.size() % int64_t{sizeof(uint16_t)} == 0, "read_tokens: '", path, "' has ", file.size(),
               " bytes, expected two for each token");
  std::vector<uint16_t> tokens(static_cast<size_t>(file.size()) / sizeof(uint16_t));
  file.read(tokens.data(), 0, file.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    TANDEM_CHECK(IoError, tokens[i] < vocabulary_size, "read_tokens: '", path, "': token ", i, " is ", tokens[i],
                 ", the vocabulary has ", vocabulary_size);
  }
  return tokens;
}

TokenDataset::TokenDataset(std::vector<uint16_t> tokens, TokenOptions options)
    : tokens_(std::move(tokens)), options_(options) {
  TANDEM_CHECK(ValueError, options.context >= 1, "TokenDataset: context is ", options.context, ", expected at least 1");
  TANDEM_CHECK(ValueError, options.stride >= 1, "TokenDataset: stride is ", options.stride, ", expected at least 1");
  TANDEM_CHECK(ValueError, static_cast<int64_t>(tokens_.size()) > options.context, "TokenDataset: ", tokens_.size(),
               " tokens, expected at least context + 1 = ", options.context + 1);
}

int64_t TokenDataset::size() const {
  return (static_cast<int64_t>(tokens_.size()) - options_.context - 1) / options_.stride + 1;
}

void TokenDataset::write_item(int64_t index, int64_t* input, int64_t* target) const {
  check_item("TokenDataset", index, size());
  const uint16_t* tokens = tokens_.data() + index * options_.stride;
  for (int64_t i = 0; i < options_.context; ++i) {
    input[i] = tokens[i];
    target[i] = tokens[i + 1];
  }
}

Example TokenDataset::get(int64_t index) const {
  Example example = {empty({options_.context}, {kInt64}), empty({options_.context}, {kInt64})};
  write_item(index, example.image.data<int64_t>(), example.label.data<int64_t>());
  return example;
}

Batch TokenDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "TokenDataset: empty batch, expected at least one index");
  const Shape shape = {count, options_.context};
  Batch batch = {empty(shape, {kInt64}), empty(shape, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    write_item(indices[static_cast<size_t>(row)], batch.images.data<int64_t>() + row * options_.context,
               batch.labels.data<int64_t>() + row * options_.context);
  }
  return batch;
}

CharTextDataset::CharTextDataset(std::string_view text, TextSplit split, TokenOptions options)
    : vocabulary_(text), tokens_(vocabulary_.encode(part_of(text, split)), options) {}

}}}  // namespace tandem::v0::data
