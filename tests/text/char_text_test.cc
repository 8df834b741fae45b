#include <tandem/text/char_text.h>

#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::testing::error_text;
using td::testing::write_file;
using td::text::CharTextDataset;
using td::text::CharVocabulary;
using td::text::TextSplit;

namespace {

TEST(CharVocabulary, TokensNumberTheSortedDistinctBytes) {
  const CharVocabulary vocabulary("hello, world\n");
  EXPECT_EQ(vocabulary.characters(), "\n ,dehlorw");
  EXPECT_EQ(vocabulary.size(), 10);
  EXPECT_EQ(vocabulary.encode("hello"), (std::vector<uint16_t>{5, 4, 6, 6, 7}));
  EXPECT_EQ(vocabulary.decode(std::vector<int64_t>{9, 7, 8, 6, 3}), "world");
  EXPECT_EQ(CharVocabulary("").size(), 0);
}

TEST(CharVocabulary, EveryByteValueRoundTrips) {
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all += static_cast<char>(byte);
  const CharVocabulary vocabulary(all);
  EXPECT_EQ(vocabulary.size(), 256);
  const auto tokens = vocabulary.encode(all);
  EXPECT_EQ(vocabulary.decode(std::vector<int64_t>(tokens.begin(), tokens.end())), all);
}

TEST(CharVocabulary, UnknownBytesAndTokensAreRejected) {
  const CharVocabulary vocabulary("abc");
  EXPECT_ERROR(td::ValueError, vocabulary.encode("ab\xc3z"),
               "CharVocabulary: the byte 195 at position 2 is not in the vocabulary");
  EXPECT_ERROR(td::IndexError, vocabulary.decode(std::vector<int64_t>{1, 3}),
               "CharVocabulary: token 1 is 3, expected 0 <= token < 3");
  EXPECT_ERROR(td::IndexError, vocabulary.decode(std::vector<int64_t>{-1}),
               "CharVocabulary: token 0 is -1, expected 0 <= token < 3");
}

TEST(CharTextDataset, SplitsTheTextAtNinetyPercent) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz01234";  // 31 bytes: 27 and 4
  const CharTextDataset train(text, TextSplit::kTrain, {.context = 2});
  const CharTextDataset validation(text, TextSplit::kValidation, {.context = 2});
  EXPECT_EQ(train.size(), 25);
  EXPECT_EQ(validation.size(), 2);
  EXPECT_EQ(train.vocabulary().characters(), "01234abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(validation.vocabulary().characters(), train.vocabulary().characters());
  EXPECT_EQ(train.vocabulary().decode(train.get(24).target.to_vector<int64_t>()), "z0");
  EXPECT_EQ(validation.vocabulary().decode(validation.get(0).input.to_vector<int64_t>()), "12");
}

TEST(ReadText, ReadsArbitraryBytesAndRejectsFolders) {
  const td::testing::TemporaryFolder folder;
  const std::string bytes("a\0\xff\n", 4);
  write_file(folder / "t", bytes);
  EXPECT_EQ(td::text::read_text(folder / "t"), bytes);
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { td::text::read_text(folder.path()); })),
            "read_text: 'DIR' is a folder, not a regular file");
}

}  // namespace
