#include <tandem/text/token_file.h>

#include <unistd.h>

#include <tandem/data/data_loader.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/text/token_dataset.h>

namespace td = tandem;
using td::testing::error_text;
using td::testing::TemporaryFolder;
using td::testing::write_file;
using td::text::TokenDataset;
using td::text::TokenFile;
using td::text::TokenType;
using td::text::write_tokens;

namespace {

std::vector<uint16_t> counted(int count) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<uint16_t>(i));
  return tokens;
}

std::vector<int64_t> read(const TokenFile& file, int64_t begin, int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  file.read(begin, tokens);
  return tokens;
}

TEST(TokenFile, TokensAreReadAsLittleEndian) {
  const TemporaryFolder folder;
  write_file(folder / "t", std::string("\x01\x00\xff\x01\x00\x80\x02\x00", 8));
  const TokenFile two(folder / "t", 50257);
  EXPECT_EQ(two.size(), 4);
  EXPECT_EQ(read(two, 0, 4), (std::vector<int64_t>{1, 511, 32768, 2}));
  EXPECT_EQ(read(two, 1, 2), (std::vector<int64_t>{511, 32768}));
  const TokenFile four(folder / "t", int64_t{1} << 32, TokenType::kUInt32);
  EXPECT_EQ(four.size(), 2);
  EXPECT_EQ(read(four, 0, 2), (std::vector<int64_t>{0x01ff0001, 0x00028000}));
  write_file(folder / "empty", "");
  EXPECT_EQ(TokenFile(folder / "empty", 1).size(), 0);
  EXPECT_EQ(read(TokenFile(folder / "empty", 1), 0, 0), std::vector<int64_t>());
}

TEST(TokenFile, InvalidFilesAndRangesAreRejected) {
  const TemporaryFolder folder;
  write_file(folder / "t", std::string("\x01\x00\x05\x00\x02", 5));
  const auto error_of = [&](const auto& f) { return folder.shortened(error_text<td::IoError>(f)); };
  EXPECT_EQ(error_of([&] { TokenFile(folder / "t", 10); }),
            "TokenFile: 'DIR/t' has 5 bytes, expected 2 for each token");
  EXPECT_EQ(error_of([&] { TokenFile(folder / "t", 10, TokenType::kUInt32); }),
            "TokenFile: 'DIR/t' has 5 bytes, expected 4 for each token");
  EXPECT_EQ(error_of([&] { TokenFile(folder / "none", 5); }),
            "TokenFile: cannot open 'DIR/none': No such file or directory");
  write_file(folder / "t", std::string("\x01\x00\x05\x00", 4));
  const TokenFile file(folder / "t", 5);
  EXPECT_EQ(read(file, 0, 1), std::vector<int64_t>{1});
  EXPECT_EQ(error_of([&] { read(file, 0, 2); }),
            "TokenFile: 'DIR/t': token 1 is 5, expected 0 <= token < vocabulary_size 5");
  for (const auto& [begin, count] : {std::pair(0, 3), {-1, 1}, {2, 1}}) {
    EXPECT_ERROR(td::IndexError, read(file, begin, count),
                 td::str("TokenFile: begin is ", begin, " for ", count, " tokens, expected 0 <= begin <= ", 2 - count));
  }
}

TEST(WriteTokens, FileHasTheTokensInEitherType) {
  const TemporaryFolder folder;
  const std::vector<int64_t> tokens = {0, 65535, 7};
  write_tokens(folder / "two", tokens);
  EXPECT_EQ(td::testing::read_file(folder / "two"), std::string("\0\0\xff\xff\x07\0", 6));
  write_tokens(folder / "two", std::vector<int64_t>{258}, {.append = true});
  EXPECT_EQ(td::testing::read_file(folder / "two"), std::string("\0\0\xff\xff\x07\0\x02\x01", 8));
  write_tokens(folder / "two", tokens);
  EXPECT_EQ(read(TokenFile(folder / "two", 65536), 0, 3), tokens);
  const std::vector<int64_t> large = {0xffffffff, 0, 65536};
  write_tokens(folder / "four", large, {.type = TokenType::kUInt32});
  EXPECT_EQ(read(TokenFile(folder / "four", int64_t{1} << 32, TokenType::kUInt32), 0, 3), large);
}

TEST(WriteTokens, TokensOutsideTheTypeAreRejectedBeforeWriting) {
  const TemporaryFolder folder;
  write_tokens(folder / "t", std::vector<int64_t>{1, 2});
  const auto error_of = [&](int64_t token, TokenType type) {
    return error_text<td::ValueError>([&] {
      write_tokens(folder / "t", std::vector<int64_t>{3, token}, {.type = type});
    });
  };
  EXPECT_EQ(error_of(65536, TokenType::kUInt16), "write_tokens: token 1 is 65536, expected 0 <= token < 65536");
  EXPECT_EQ(error_of(-1, TokenType::kUInt32), "write_tokens: token 1 is -1, expected 0 <= token < 4294967296");
  EXPECT_EQ(read(TokenFile(folder / "t", 10), 0, 2), (std::vector<int64_t>{1, 2}));
}

TEST(TokenDataset, TargetsAreInputsShiftedByOne) {
  const TemporaryFolder folder;
  for (const int64_t stride : {1, 3, 4, 7}) {
    for (const int num_tokens : {5, 6, 31, 32, 33}) {
      const std::vector<uint16_t> tokens = counted(num_tokens);
      write_tokens(folder / "t", std::vector<int64_t>(tokens.begin(), tokens.end()));
      for (const TokenDataset& dataset :
           {TokenDataset(tokens, {.context = 4, .stride = stride}),
            TokenDataset(TokenFile(folder / "t", 33), {.context = 4, .stride = stride})}) {
        ASSERT_EQ(dataset.size(), (num_tokens - 5) / stride + 1);
        for (int64_t i = 0; i < dataset.size(); ++i) {
          const auto example = dataset.get(i);
          const int64_t start = i * stride;
          EXPECT_EQ(example.input.to_vector<int64_t>(), (std::vector<int64_t>{start, start + 1, start + 2, start + 3}));
          EXPECT_EQ(example.target.to_vector<int64_t>(),
                    (std::vector<int64_t>{start + 1, start + 2, start + 3, start + 4}));
        }
      }
    }
  }
}

TEST(TokenDataset, BatchEqualsStackedItems) {
  const TokenDataset dataset(counted(20), {.context = 3, .stride = 2});
  const std::vector<int64_t> indices = {7, 0, 4};
  const auto batch = dataset.get_batch(indices);
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.input.shape(), td::Shape({3, 3}));
  EXPECT_EQ(batch.input.to_vector<int64_t>(), (std::vector<int64_t>{14, 15, 16, 0, 1, 2, 8, 9, 10}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{15, 16, 17, 1, 2, 3, 9, 10, 11}));
}

TEST(TokenDataset, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, TokenDataset(counted(4), {.context = 4}),
               "TokenDataset: 4 tokens, expected at least context + 1 = 5");
  EXPECT_ERROR(td::ValueError, TokenDataset(counted(4), {.context = 0}),
               "TokenDataset: context is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, TokenDataset(counted(4), {.context = 1, .stride = 0}),
               "TokenDataset: stride is 0, expected at least 1");
  const TokenDataset dataset(counted(5), {.context = 4});
  EXPECT_ERROR(td::IndexError, dataset.get(1), "TokenDataset: index is 1, expected 0 <= index < 1");
  EXPECT_ERROR(td::ValueError, dataset.get_batch({}), "TokenDataset: empty batch, expected at least one index");
}

/// A line of /proc/self/status in KiB: RssFile are resident pages of files, VmRSS are all resident pages.
int64_t status_kib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  ADD_FAILURE() << "no line " << name;
  return 0;
}

TEST(TokenDataset, ResidentMemoryDoesNotDependOnTheFile) {
  constexpr int64_t kFileBytes = 128 << 20, kLimitKib = 20 << 10;
  const TemporaryFolder folder;
  write_file(folder / "t", "");
  std::filesystem::resize_file(folder / "t", kFileBytes);
  const TokenDataset dataset(TokenFile(folder / "t", 1), {.context = 2048, .stride = 2048});
  td::data::RandomSampler sampler(dataset.size(), 1);
  td::data::DataLoader loader(dataset, sampler, {.batch_size = 32, .num_workers = 2});
  const int64_t files = status_kib("RssFile"), all = status_kib("VmRSS");
  int64_t batches = 0, most_files = 0, most = 0;
  for (const auto& batch : loader) {
    ASSERT_EQ(batch.target.shape(), td::Shape({batch.size, 2048}));
    if (++batches % 16 != 0) continue;
    most_files = std::max(most_files, status_kib("RssFile") - files);
    most = std::max(most, status_kib("VmRSS") - all);
  }
  EXPECT_GT(batches, 1000);
  EXPECT_LT(most_files, kLimitKib);
  EXPECT_GT(most_files, 1024);                                              // pages are counted
  if (!td::testing::kThreadSanitizer && !td::testing::kAddressSanitizer) {  // their shadow memory is resident too
    EXPECT_LT(most, 2 * kLimitKib);
  }
}

}  // namespace
