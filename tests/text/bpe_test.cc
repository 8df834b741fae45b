#include <tandem/text/bpe.h>

#include <nlohmann/json.hpp>

#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using nlohmann::json;
using td::testing::error_text;
using td::testing::TemporaryFolder;
using td::text::BpeTokenizer;

namespace {

const std::string kVocabulary = "tests/fixtures/gpt2/vocab.json";
const std::string kMerges = "tests/fixtures/gpt2/merges.txt";

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

json cases() { return json::parse(std::ifstream("tests/fixtures/text/cases.json")); }

// Texts of letters, numbers, spaces and other characters of all scripts, contractions and special tokens.
TEST(BpeTokenizer, EncodesAsTokenizersDoes) {
  const BpeTokenizer tokenizer(kVocabulary, kMerges);
  EXPECT_EQ(tokenizer.size(), 640);
  int64_t count = 0;
  for (const auto& [text, expected] :
       cases()["encode"].get<std::vector<std::pair<std::string, std::vector<int64_t>>>>()) {
    EXPECT_EQ(tokenizer.encode(text), expected) << text;
    EXPECT_EQ(tokenizer.decode(expected), text);
    ++count;
  }
  EXPECT_GT(count, 250);
}

TEST(BpeTokenizer, DecodesAsTokenizersDoes) {
  const BpeTokenizer tokenizer(kVocabulary, kMerges);
  int64_t count = 0;
  for (const auto& [tokens, hex] : cases()["decode"].get<std::vector<std::pair<std::vector<int64_t>, std::string>>>()) {
    EXPECT_EQ(tokenizer.decode(tokens), bytes_of(hex));
    ++count;
  }
  EXPECT_EQ(count, 100);
}

TEST(BpeTokenizer, ArbitraryBytesRoundTrip) {
  const BpeTokenizer tokenizer(kVocabulary, kMerges);
  std::mt19937 random(1);
  for (size_t size = 0; size < 300; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random() % 256);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  }
}

/// Files with a token for each byte, `more` tokens after them, and merges.
struct Files {
  TemporaryFolder folder;
  std::string vocabulary = folder / "vocab.json", merges = folder / "merges.txt";
  json tokens;

  explicit Files(const std::vector<std::string>& more = {}, const std::string& merge_lines = "") {
    const json all = json::parse(std::ifstream(kVocabulary));
    for (const auto& [token, id] : all.items()) {
      if (id > 0 && id <= 256) tokens[token] = id.get<int64_t>() - 1;
    }
    for (const std::string& token : more) {
      const size_t id = tokens.size();
      tokens[token] = id;
    }
    write(tokens.dump(), merge_lines);
  }
  void write(const std::string& vocabulary_text, const std::string& merge_lines) const {
    folder.write("vocab.json", vocabulary_text);
    folder.write("merges.txt", merge_lines);
  }
  BpeTokenizer open(const std::vector<std::string>& special = {}) const {
    return BpeTokenizer(vocabulary, merges, {.special_tokens = special});
  }
  template <class E>
  std::string error() const {
    return folder.shortened(error_text<E>([&] { open(); }));
  }
};

std::vector<std::string> tokens_of(const BpeTokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> parts;
  for (const int64_t token : tokenizer.encode(text)) parts.push_back(tokenizer.decode(std::vector<int64_t>{token}));
  return parts;
}

using Parts = std::vector<std::string>;

TEST(BpeTokenizer, MergesFollowLinesThenPositions) {
  const Files files({"ab", "bc", "abc", "aa", "aaa"}, "#version: 0.2\r\nb c\r\na b\n\na bc\na a\naa a");
  const BpeTokenizer tokenizer = files.open();
  EXPECT_EQ(tokens_of(tokenizer, "abc"), Parts{"abc"});
  EXPECT_EQ(tokens_of(tokenizer, "abab"), (Parts{"ab", "ab"}));
  EXPECT_EQ(tokens_of(tokenizer, "aaaaa"), (Parts{"aa", "aaa"}));
  EXPECT_EQ(tokens_of(tokenizer, "a b"), (Parts{"a", " ", "b"}));  // words are not merged
}

// In quadratic time this would not end.
TEST(BpeTokenizer, LongWordsTakeAlmostLinearTime) {
  const BpeTokenizer tokenizer = Files({"aa", "aaaa"}, "a a\naa aa").open();
  const std::string text(1 << 19, 'a');
  const std::vector<int64_t> tokens = tokenizer.encode(text);
  EXPECT_EQ(tokens, std::vector<int64_t>(text.size() / 4, 257));
  EXPECT_EQ(tokenizer.decode(tokens), text);
}

TEST(BpeTokenizer, TheLongestSpecialTokenIsFoundBeforeWords) {
  const Files files({"<x>", "<x>y", "\u00e9 z"});
  EXPECT_EQ(tokens_of(files.open({"<x>", "<x>y", "\u00e9 z"}), "a<x><x>y<x\u00e9 z"),
            (Parts{"a", "<x>", "<x>y", "<", "x", "\u00e9 z"}));
  EXPECT_EQ(tokens_of(files.open({"<x>"}), "<x>y"), (Parts{"<x>", "y"}));
  EXPECT_EQ(tokens_of(files.open(), "<x>"), (Parts{"<", "x", ">"}));
  EXPECT_EQ(files.open().token_to_id("<x>y"), 257);
  EXPECT_EQ(files.open().token_to_id("<y>"), std::nullopt);
}

TEST(BpeTokenizer, InvalidTokensAreRejected) {
  const BpeTokenizer tokenizer(kVocabulary, kMerges);
  EXPECT_ERROR(td::IndexError, tokenizer.decode(std::vector<int64_t>{1, 640}),
               "BpeTokenizer: token 1 is 640, expected 0 <= token < 640");
  EXPECT_ERROR(td::IndexError, tokenizer.decode(std::vector<int64_t>{-1}),
               "BpeTokenizer: token 0 is -1, expected 0 <= token < 640");
  const Files files;
  EXPECT_EQ(
      files.folder.shortened(error_text<td::ValueError>([&] { files.open({"<x>"}); })),
      "BpeTokenizer: the special token '<x>' is not in the vocabulary of 'DIR/vocab.json'; pass the special tokens of "
      "this vocabulary");
}

TEST(BpeTokenizer, InvalidVocabulariesAreRejected) {
  const Files files;
  const auto error_of = [&](const std::string& text) {
    files.write(text, "");
    return files.error<td::IoError>();
  };
  EXPECT_EQ(error_of("{\"a\": 0, \"b\"}"), "BpeTokenizer: 'DIR/vocab.json' is not valid JSON at byte 13");
  EXPECT_EQ(error_of(std::string("{}\0", 3)), "BpeTokenizer: 'DIR/vocab.json' is not JSON: it contains a NUL");
  files.write("\xef\xbb\xbf" + files.tokens.dump(), "");  // a byte order mark is ignored
  EXPECT_EQ(files.open().size(), 256);
  EXPECT_EQ(error_of("[0]"), "BpeTokenizer: 'DIR/vocab.json' is not a JSON object from tokens to numbers");
  const std::string expected = "expected an integer from 0 to 1 that no other token has, got ";
  for (const auto& [value, shown] : {std::pair("2", "2"),
                                     {"-1", "-1"},
                                     {"0.5", "0.5"},
                                     {"0", "0"},
                                     {"\"1\"", "string"},
                                     {"[1]", "array"},
                                     {"18446744073709551616", "1.8446744073709552e+19"}}) {
    EXPECT_EQ(error_of(td::str("{\"a\": 0, \"b\": ", value, "}")),
              "BpeTokenizer: 'DIR/vocab.json': token 'b': " + expected + shown);
  }
  EXPECT_EQ(error_of("{\"!\": 0}"), "BpeTokenizer: 'DIR/vocab.json' has no token '\u0100' for the byte 0");
  EXPECT_EQ(error_of("{\"a\": 1e999}"), "BpeTokenizer: 'DIR/vocab.json' has a number outside the range of double");
}

TEST(BpeTokenizer, InvalidMergesAreRejected) {
  const Files files({"ab"});
  const auto error_of = [&](const std::string& lines) {
    files.write(files.tokens.dump(), lines);
    return files.error<td::IoError>();
  };
  EXPECT_EQ(error_of("#version: 0.2\na b\nab\n"),
            "BpeTokenizer: 'DIR/merges.txt': line 3: expected two tokens with a space between them");
  EXPECT_EQ(error_of("a b c"), "BpeTokenizer: 'DIR/merges.txt': line 1: expected two tokens with a space between them");
  EXPECT_EQ(error_of("a bc"), "BpeTokenizer: 'DIR/merges.txt': line 1: the token 'bc' is not in the vocabulary");
  EXPECT_EQ(error_of("b a"), "BpeTokenizer: 'DIR/merges.txt': line 1: the token 'ba' is not in the vocabulary");
}

}  // namespace
