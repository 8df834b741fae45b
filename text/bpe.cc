#include <tandem/text/bpe.h>

#include <array>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/text/split_words.h>
#include <tandem/text/utf8.h>

namespace tandem { inline namespace v0 { namespace text {

struct BpeMerge {
  int32_t rank;   ///< number of its line
  int32_t token;  ///< the result
};

namespace {

constexpr const char* kOp = "BpeTokenizer";
constexpr size_t kNumBytes = 256;
constexpr size_t kMaxCachedWords = 1 << 16;

/// The character that stands for each byte in the files: printable Latin-1 characters stand for themselves, the others
/// for U+0100, U+0101, .. in ascending order.
std::array<char32_t, kNumBytes> byte_characters() {
  std::array<char32_t, kNumBytes> characters;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < kNumBytes; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    characters[byte] = is_printable ? byte : next++;
  }
  return characters;
}

/// The bytes that the characters of a token represent. A token with another character represents its own bytes.
std::string bytes_of(std::string_view token) {
  static const std::unordered_map<char32_t, char> kByteOf = [] {
    std::unordered_map<char32_t, char> bytes;
    const auto characters = byte_characters();
    for (size_t byte = 0; byte < kNumBytes; ++byte) bytes[characters[byte]] = static_cast<char>(byte);
    return bytes;
  }();
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const CodePoint point = decode_utf8(rest);
    const auto found = kByteOf.find(point.value);
    if (found == kByteOf.end()) return std::string(token);
    bytes += found->second;
    rest.remove_prefix(point.length);
  }
  return bytes;
}

/// A code point of at most U+07FF in UTF-8.
std::string to_utf8(char32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// The tokens of vocab.json with their numbers.
std::unordered_map<std::string, int32_t> read_vocabulary(const std::string& path) {
  const std::string text = InputFile(kOp, path).text();
  // The parser takes a NUL for the end of the text.
  TANDEM_CHECK(IoError, text.find('\0') == std::string::npos, kOp, ": '", path, "' is not JSON: it contains a NUL");
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw IoError(str(kOp, ": '", path, "' is not valid JSON at byte ", error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw IoError(str(kOp, ": '", path, "' has a number outside the range of double"));
  }
  TANDEM_CHECK(IoError, root.is_object() && root.size() <= std::numeric_limits<int32_t>::max(), kOp, ": '", path,
               "' is not a JSON object from tokens to numbers");
  std::unordered_map<std::string, int32_t> ids;
  std::vector<bool> used(root.size());
  for (const auto& [token, id] : root.items()) {
    const bool is_valid = id.is_number_unsigned() && id.get<uint64_t>() < root.size();
    TANDEM_CHECK(IoError, is_valid && !used[id.get<size_t>()], kOp, ": '", path, "': token '", token,
                 "': expected an integer from 0 to ", root.size() - 1, " that no other token has, got ",
                 id.is_number() ? id.dump() : id.type_name());
    used[id.get<size_t>()] = true;
    ids.emplace(token, id.get<int32_t>());
  }
  return ids;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

std::unordered_map<uint64_t, BpeMerge> read_merges(const std::string& path,
                                                   const std::unordered_map<std::string, int32_t>& ids) {
  const std::string text = InputFile(kOp, path).text();
  std::unordered_map<uint64_t, BpeMerge> merges;
  int32_t line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view whole = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), whole.size() + 1));
    const std::string_view line = whole.ends_with('\r') ? whole.substr(0, whole.size() - 1) : whole;
    ++line_number;
    if (line.empty() || line.starts_with("#version")) continue;
    const auto check = [&](bool condition, const auto&... what) {
      TANDEM_CHECK(IoError, condition, kOp, ": '", path, "': line ", line_number, ": ", what...);
    };
    const size_t space = line.find(' ');
    check(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos,
          "expected two tokens with a space between them");
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    const auto id_of = [&](const std::string& token) {
      const auto found = ids.find(token);
      check(found != ids.end(), "the token '", token, "' is not in the vocabulary");
      return found->second;
    };
    const int32_t left_id = id_of(left), right_id = id_of(right);
    merges[pair_key(left_id, right_id)] = {line_number, id_of(left + right)};
  }
  return merges;
}

}  // namespace

struct BpeTokenizer::Model {
  struct Special {
    std::string bytes;
    int32_t token;
  };

  std::unordered_map<std::string, int32_t> ids;
  std::vector<std::string> tokens;  ///< bytes
  std::array<int32_t, kNumBytes> byte_tokens;
  std::unordered_map<uint64_t, BpeMerge> merges;
  std::vector<Special> specials;

  void encode_word(std::string_view word, std::vector<int64_t>& out) const;
};

/// Appends the tokens of a word.
void BpeTokenizer::Model::encode_word(std::string_view word, std::vector<int64_t>& out) const {
  // A token covers the bytes from its place up to the place of the next one. Places inside of tokens have token -1.
  struct Place {
    int32_t token;
    size_t previous, next;
  };
  const size_t end = word.size();
  std::vector<Place> places(end);
  for (size_t i = 0; i < end; ++i) places[i] = {byte_tokens[static_cast<uint8_t>(word[i])], i - 1, i + 1};

  // (rank, place of the left token, result), the first line of merges.txt and the first place on top. An entry whose
  // tokens have changed since is ignored.
  using Candidate = std::tuple<int32_t, size_t, int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto find_merge = [&](size_t left) -> const BpeMerge* {
    const size_t right = places[left].next;
    if (places[left].token < 0 || right >= end) return nullptr;
    const auto found = merges.find(pair_key(places[left].token, places[right].token));
    return found == merges.end() ? nullptr : &found->second;
  };
  const auto add_candidate = [&](size_t left) {
    if (const BpeMerge* merge = find_merge(left)) candidates.emplace(merge->rank, left, merge->token);
  };
  for (size_t i = 0; i < end; ++i) add_candidate(i);
  while (!candidates.empty()) {
    const auto [rank, left, token] = candidates.top();
    candidates.pop();
    const BpeMerge* merge = find_merge(left);
    if (merge == nullptr || merge->rank != rank) continue;
    const size_t right = places[left].next;
    places[left].token = token;
    places[left].next = places[right].next;
    places[right].token = -1;
    if (places[left].next < end) places[places[left].next].previous = left;
    add_candidate(left);
    if (left > 0) add_candidate(places[left].previous);
  }
  for (size_t i = 0; i < end; i = places[i].next) out.push_back(places[i].token);
}

BpeTokenizer::BpeTokenizer(const std::string& vocab_path, const std::string& merges_path, Options options) {
  Model model;
  model.ids = read_vocabulary(vocab_path);
  model.tokens.resize(model.ids.size());
  for (const auto& [token, id] : model.ids) model.tokens[static_cast<size_t>(id)] = bytes_of(token);
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < kNumBytes; ++byte) {
    const auto found = model.ids.find(to_utf8(characters[byte]));
    TANDEM_CHECK(IoError, found != model.ids.end(), kOp, ": '", vocab_path, "' has no token '",
                 to_utf8(characters[byte]), "' for the byte ", byte);
    model.byte_tokens[byte] = found->second;
  }
  model.merges = read_merges(merges_path, model.ids);
  for (std::string& token : options.special_tokens) {
    const auto found = model.ids.find(token);
    TANDEM_CHECK(ValueError, !token.empty() && found != model.ids.end(), kOp, ": the special token '", token,
                 "' is not in the vocabulary of '", vocab_path, "'; pass the special tokens of this vocabulary");
    model.tokens[static_cast<size_t>(found->second)] = token;
    model.specials.push_back({std::move(token), found->second});
  }
  model_ = std::make_shared<const Model>(std::move(model));
}

int64_t BpeTokenizer::size() const { return static_cast<int64_t>(model_->tokens.size()); }

std::vector<int64_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> result;
  // Where the tokens of words of this text are in `result`.
  std::unordered_map<std::string_view, std::pair<size_t, size_t>> known;
  const auto add_word = [&](std::string_view word) {
    const auto found = known.find(word);
    if (found != known.end()) {
      const auto [begin, count] = found->second;
      for (size_t i = begin; i < begin + count; ++i) result.push_back(result[i]);
      return;
    }
    const size_t begin = result.size();
    model_->encode_word(word, result);
    if (known.size() < kMaxCachedWords) known.emplace(word, std::pair(begin, result.size() - begin));
  };
  // Where each special token occurs next.
  std::vector<size_t> next;
  for (const Model::Special& special : model_->specials) next.push_back(text.find(special.bytes));
  for (size_t begin = 0; begin < text.size();) {
    const Model::Special* special = nullptr;
    size_t end = text.size();
    for (size_t i = 0; i < next.size(); ++i) {
      const Model::Special& candidate = model_->specials[i];
      if (next[i] < begin) next[i] = text.find(candidate.bytes, begin);
      const bool is_longer = special != nullptr && next[i] == end && candidate.bytes.size() > special->bytes.size();
      if (next[i] < end || is_longer) {
        special = &candidate;
        end = next[i];
      }
    }
    const std::string_view part = text.substr(0, end);
    while (begin < end) {
      const size_t end_of = end_of_word(part, begin);
      add_word(text.substr(begin, end_of - begin));
      begin = end_of;
    }
    if (special != nullptr) {
      result.push_back(special->token);
      begin += special->bytes.size();
    }
  }
  return result;
}

std::string BpeTokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    TANDEM_CHECK(IndexError, tokens[i] >= 0 && tokens[i] < size(), kOp, ": token ", i, " is ", tokens[i],
                 ", expected 0 <= token < ", size());
    text += model_->tokens[static_cast<size_t>(tokens[i])];
  }
  return text;
}

std::optional<int64_t> BpeTokenizer::token_to_id(const std::string& token) const {
  const auto found = model_->ids.find(token);
  return found == model_->ids.end() ? std::nullopt : std::optional<int64_t>(found->second);
}

}}}  // namespace tandem::v0::text
