#include <tandem/data/idx.h>

#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::testing::Bytes;
using td::testing::gzip;
using td::testing::idx;

namespace {

class Idx : public ::testing::Test {
 protected:
  /// The error text of read_idx for a file with these bytes, after the path.
  std::string error_of(const Bytes& bytes, const std::string& name = "file") {
    const std::string path = folder_.write(name, bytes);
    const std::string prefix = "read_idx: '" + path + "'";
    const std::string text = td::testing::error_text<td::IoError>([&] { td::data::read_idx(path); });
    EXPECT_EQ(text.substr(0, prefix.size()), prefix);
    return text.substr(std::min(prefix.size(), text.size()));
  }

  td::testing::TemporaryFolder folder_;
};

TEST_F(Idx, PlainAndGzipFilesAreRead) {
  const Bytes file = idx({2, 3}, {1, 2, 3, 253, 254, 255});
  for (const td::Tensor& values :
       {td::data::read_idx(folder_.write("a", file)), td::data::read_idx(folder_.write("a.gz", gzip(file)))}) {
    EXPECT_EQ(values.dtype(), td::kUInt8);
    EXPECT_EQ(values.shape(), td::Shape({2, 3}));
    EXPECT_EQ(values.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 253, 254, 255}));
  }
}

TEST_F(Idx, EmptyArraysAreRead) {
  EXPECT_EQ(td::data::read_idx(folder_.write("a", idx({0}, {}))).shape(), td::Shape({0}));
  EXPECT_EQ(td::data::read_idx(folder_.write("a.gz", gzip(idx({3, 0, 4}, {})))).shape(), td::Shape({3, 0, 4}));
}

TEST_F(Idx, FilesLargerThanOneBufferAreRead) {
  Bytes values(1 << 20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * i >> 7);
  const td::Tensor read = td::data::read_idx(folder_.write("a.gz", gzip(idx({1 << 10, 1 << 10}, values))));
  EXPECT_TRUE(std::equal(values.begin(), values.end(), read.data<uint8_t>()));
}

TEST_F(Idx, NonIdxFilesAreRejected) {
  EXPECT_EQ(error_of({}), ": magic number: the file has 0 bytes, expected at least 4");
  EXPECT_EQ(error_of({0, 0, 8}), ": magic number: the file has 3 bytes, expected at least 4");
  EXPECT_EQ(error_of({'P', 'K', 3, 4}), ": magic number: begins with 50 4b, expected 00 00");
  EXPECT_EQ(error_of({0, 0, 0x0d, 1, 0, 0, 0, 0}), ": type code is 0d, expected 08 (unsigned bytes)");
  EXPECT_EQ(error_of({0, 0, 8, 0}), ": number of dimensions is 0, expected at least 1");
  EXPECT_EQ(error_of({0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0}), ": the file ends inside size 1 of 2");
}

TEST_F(Idx, SizesThatMismatchTheFileAreRejected) {
  EXPECT_EQ(error_of(idx({2, 3}, {1, 2, 3, 4, 5})), ": the sizes [2, 3] need 6 bytes, the file has at most 5");
  EXPECT_EQ(error_of(idx({2, 3}, {1, 2, 3, 4, 5, 6, 7})), ": bytes follow the 6 values of sizes [2, 3]");
  EXPECT_EQ(error_of(idx({2}, {})), ": the sizes [2] need 2 bytes, the file has at most 0");
  EXPECT_EQ(error_of(idx({0xffffffff, 0xffffffff, 2}, {})),
            ": the product of the sizes [4294967295, 4294967295] overflows");
  EXPECT_EQ(error_of(idx({0, 0xffffffff, 0xffffffff}, {})),
            ": the product of the sizes [0, 4294967295, 4294967295] overflows");
  // No memory is allocated for sizes that the file cannot have: a few bytes do not decompress to 4 GiB.
  const Bytes claim = gzip(idx({0xffffffff}, {}));
  EXPECT_EQ(error_of(claim, "a.gz"), td::str(": the sizes [4294967295] need 4294967295 bytes, the file has at most ",
                                             (claim.size() + 1) * 1032));
}

TEST_F(Idx, CorruptGzipStreamsAreRejected) {
  const Bytes plain = idx({4, 5}, Bytes(20, 7));
  const Bytes good = gzip(plain);
  EXPECT_EQ(error_of(plain, "a.gz"), " is not a gzip file: it does not begin with 1f 8b");
  EXPECT_EQ(error_of(gzip(idx({4, 5}, Bytes(19, 7))), "a.gz"),
            ": the sizes [4, 5] need 20 bytes, the file ends after 19");
  EXPECT_EQ(error_of(gzip(idx({4, 5}, Bytes(21, 7))), "a.gz"), ": bytes follow the 20 values of sizes [4, 5]");

  Bytes trailing = good;
  trailing.push_back(0);
  EXPECT_EQ(error_of(trailing, "a.gz"), ": 1 bytes follow the end of the gzip stream");
  Bytes checksum = good;
  checksum[checksum.size() - 8] ^= 1;  // of the crc32
  EXPECT_EQ(error_of(checksum, "a.gz"), ": the gzip stream is damaged: incorrect data check");
  Bytes length = good;
  length[length.size() - 1] ^= 1;
  EXPECT_EQ(error_of(length, "a.gz"), ": the gzip stream is damaged: incorrect length check");
}

TEST_F(Idx, EveryTruncationIsRejected) {
  const Bytes plain = idx({4, 5}, Bytes(20, 7));
  const Bytes compressed = gzip(plain);
  for (size_t size = 0; size < plain.size(); ++size) {
    EXPECT_NE(error_of(Bytes(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(size))), "") << size;
  }
  for (size_t size = 2; size < compressed.size(); ++size) {
    EXPECT_EQ(error_of(Bytes(compressed.begin(), compressed.begin() + static_cast<ptrdiff_t>(size)), "a.gz"),
              ": the gzip stream ends early")
        << size;
  }
}

TEST_F(Idx, UnreadableFileErrorNamesTheReason) {
  const std::string missing = folder_.path() + "/missing";
  EXPECT_ERROR(td::IoError, td::data::read_idx(missing),
               "read_idx: cannot open '" + missing + "': No such file or directory");
  EXPECT_THROW(td::data::read_idx(folder_.path()), td::IoError);
}

}  // namespace
