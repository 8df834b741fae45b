#include <tandem/text/split_words.h>

#include <tandem/tests/support/test.h>
#include <tandem/text/utf8.h>

namespace tandem::text { namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_word(text, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(SplitWords, OneSpaceBelongsToTheFollowingWord) {
  EXPECT_EQ(words_of("a b1 !? c"), (Words{"a", " b", "1", " !?", " c"}));
  EXPECT_EQ(words_of("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(words_of("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words_of("a \n"), (Words{"a", " \n"}));
  EXPECT_EQ(words_of(" "), Words{" "});
  EXPECT_EQ(words_of(""), Words());
}

TEST(SplitWords, ContractionsAreWordsOnlyAtTheBeginningOfAWord) {
  EXPECT_EQ(words_of("we'll it's"), (Words{"we", "'ll", " it", "'s"}));
  EXPECT_EQ(words_of("'sa"), (Words{"'s", "a"}));
  EXPECT_EQ(words_of("!'s 's 'S"), (Words{"!'", "s", " '", "s", " '", "S"}));
}

TEST(SplitWords, WordsOfAllScriptsAreFound) {
  EXPECT_EQ(words_of("\u00e9t\u00e9\u0661\u0662\u4f60\u597d"),
            (Words{"\u00e9t\u00e9", "\u0661\u0662", "\u4f60\u597d"}));
  EXPECT_EQ(words_of("12.5%\u0661!\u00bd?"), (Words{"12", ".", "5", "%", "\u0661", "!", "\u00bd", "?"}));
  EXPECT_EQ(words_of("e\u0301"), (Words{"e", "\u0301"}));  // a combining accent is not a letter
  EXPECT_EQ(words_of("a\u3000\u00a0b"), (Words{"a", "\u3000", "\u00a0", "b"}));
}

TEST(SplitWords, MalformedBytesAreOtherCharacters) {
  EXPECT_EQ(words_of("a\xff\xc3(b"), (Words{"a", "\xff\xc3(", "b"}));
  EXPECT_EQ(words_of("\xe4\xbd"), Words{"\xe4\xbd"});
}

TEST(DecodeUtf8, AcceptsExactlyWellFormedSequences) {
  const auto expect = [](std::string_view text, char32_t value, size_t length) {
    const CodePoint point = decode_utf8(text);
    EXPECT_EQ(point.value, value) << text;
    EXPECT_EQ(point.length, length) << text;
  };
  expect("a", 'a', 1);
  expect(std::string_view("\0", 1), 0, 1);
  expect("\u007f", 0x7f, 1);
  expect("\u0080x", 0x80, 2);
  expect("\u07ff", 0x7ff, 2);
  expect("\u0800", 0x800, 3);
  expect("\ud7ff", 0xd7ff, 3);
  expect("\ue000", 0xe000, 3);
  expect("\U00010000", 0x10000, 4);
  expect("\U0010ffff", 0x10ffff, 4);
  for (const std::string_view malformed :
       {"", "\x80", "\xc3", "\xc3(", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xe4\xbd",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"}) {
    expect(malformed, 0, 0);
  }
}

}}  // namespace tandem::text
