#include <tandem/data/text.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace td = tandem;
using td::data::CharTextDataset;
using td::data::CharVocabulary;
using td::data::TextSplit;
using td::data::TokenDataset;
using td::testing::error_text;
using td::testing::write_file;

namespace {

std::vector<uint16_t> counted(int count) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<uint16_t>(i));
  return tokens;
}

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
  EXPECT_EQ(error_text<td::ValueError>([&] { vocabulary.encode("ab\xc3z"); }),
            "CharVocabulary: the byte 195 at position 2 is not in the vocabulary");
  EXPECT_EQ(error_text<td::IndexError>([&] {
              vocabulary.decode(std::vector<int64_t>{1, 3});
            }),
            "CharVocabulary: token 1 is 3, expected 0 <= token < 3");
  EXPECT_EQ(error_text<td::IndexError>([&] { vocabulary.decode(std::vector<int64_t>{-1}); }),
            "CharVocabulary: token 0 is -1, expected 0 <= token < 3");
}

TEST(ReadTokens, TokensAreReadAsLittleEndian) {
  const td::testing::TemporaryFolder folder;
  write_file(folder / "t", std::string("\x01\x00\xff\x01\x00\x80", 6));
  EXPECT_EQ(td::data::read_tokens(folder / "t", 50257), (std::vector<uint16_t>{1, 511, 32768}));
  write_file(folder / "empty", "");
  EXPECT_TRUE(td::data::read_tokens(folder / "empty", 1).empty());
}

TEST(ReadTokens, InvalidTokenFilesAreRejected) {
  const td::testing::TemporaryFolder folder;
  write_file(folder / "t", std::string("\x01\x00\x05\x00\x02", 5));
  const auto error_of = [&](const std::string& name, int64_t size) {
    return folder.shortened(error_text<td::IoError>([&] { td::data::read_tokens(folder / name, size); }));
  };
  EXPECT_EQ(error_of("t", 10), "read_tokens: 'DIR/t' has 5 bytes, expected two for each token");
  write_file(folder / "t", std::string("\x01\x00\x05\x00", 4));
  EXPECT_EQ(error_of("t", 5), "read_tokens: 'DIR/t': token 1 is 5, the vocabulary has 5");
  EXPECT_EQ(error_of("none", 5), "read_tokens: cannot open 'DIR/none': No such file or directory");
}

TEST(TokenDataset, TargetsAreInputsShiftedByOne) {
  for (const int64_t stride : {1, 3, 4, 7}) {
    for (const int num_tokens : {5, 6, 31, 32, 33}) {
      const TokenDataset dataset(counted(num_tokens), {.context = 4, .stride = stride});
      ASSERT_EQ(dataset.size(), (num_tokens - 5) / stride + 1);
      for (int64_t i = 0; i < dataset.size(); ++i) {
        const auto example = dataset.get(i);
        const int64_t start = i * stride;
        EXPECT_EQ(example.image.to_vector<int64_t>(), (std::vector<int64_t>{start, start + 1, start + 2, start + 3}));
        EXPECT_EQ(example.label.to_vector<int64_t>(),
                  (std::vector<int64_t>{start + 1, start + 2, start + 3, start + 4}));
      }
    }
  }
}

TEST(TokenDataset, BatchEqualsStackedItems) {
  const TokenDataset dataset(counted(20), {.context = 3, .stride = 2});
  const std::vector<int64_t> indices = {7, 0, 4};
  const auto batch = dataset.get_batch(indices);
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.images.shape(), td::Shape({3, 3}));
  EXPECT_EQ(batch.images.to_vector<int64_t>(), (std::vector<int64_t>{14, 15, 16, 0, 1, 2, 8, 9, 10}));
  EXPECT_EQ(batch.labels.to_vector<int64_t>(), (std::vector<int64_t>{15, 16, 17, 1, 2, 3, 9, 10, 11}));
}

TEST(TokenDataset, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { TokenDataset(counted(4), {.context = 4}); }),
            "TokenDataset: 4 tokens, expected at least context + 1 = 5");
  EXPECT_EQ(error_text<td::ValueError>([] { TokenDataset(counted(4), {.context = 0}); }),
            "TokenDataset: context is 0, expected at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { TokenDataset(counted(4), {.context = 1, .stride = 0}); }),
            "TokenDataset: stride is 0, expected at least 1");
  const TokenDataset dataset(counted(5), {.context = 4});
  EXPECT_EQ(error_text<td::IndexError>([&] { dataset.get(1); }), "TokenDataset: index is 1, expected 0 <= index < 1");
  EXPECT_EQ(error_text<td::ValueError>([&] { dataset.get_batch({}); }),
            "TokenDataset: empty batch, expected at least one index");
}

TEST(CharTextDataset, SplitsTheTextAtNinetyPercent) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz01234";  // 31 bytes: 27 and 4
  const CharTextDataset train(text, TextSplit::kTrain, {.context = 2});
  const CharTextDataset validation(text, TextSplit::kValidation, {.context = 2});
  EXPECT_EQ(train.size(), 25);
  EXPECT_EQ(validation.size(), 2);
  EXPECT_EQ(train.vocabulary().characters(), "01234abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(validation.vocabulary().characters(), train.vocabulary().characters());
  EXPECT_EQ(train.vocabulary().decode(train.get(24).label.to_vector<int64_t>()), "z0");
  EXPECT_EQ(validation.vocabulary().decode(validation.get(0).image.to_vector<int64_t>()), "12");
}

TEST(ReadText, ReadsArbitraryBytesAndRejectsFolders) {
  const td::testing::TemporaryFolder folder;
  const std::string bytes("a\0\xff\n", 4);
  write_file(folder / "t", bytes);
  EXPECT_EQ(td::data::read_text(folder / "t"), bytes);
  EXPECT_EQ(folder.shortened(error_text<td::IoError>([&] { td::data::read_text(folder.path()); })),
            "read_text: 'DIR' is a folder, not a regular file");
}

}  // namespace
