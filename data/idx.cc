#include <tandem/data/idx.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <limits>
#include <string>

#include <tandem/base/file.h>
#include <tandem/data/decode.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr uint8_t kTypeUInt8 = 0x08;
constexpr int kGzipWindowBits = 15 + 16;  // zlib: the largest window, and a gzip header is required

/// Reads the bytes of a file in order, and decompresses a gzip file.
class Source {
 public:
  explicit Source(const std::string& path)
      : path_(path), compressed_(path.ends_with(".gz")), file_(InputFile("read_idx", path).text()) {
    if (!compressed_) return;
    TANDEM_CHECK(IoError, file_.starts_with("\x1f\x8b"), "read_idx: '", path_,
                 "' is not a gzip file: it does not begin with 1f 8b");
    TANDEM_CHECK(IoError, file_.size() <= std::numeric_limits<uInt>::max(), "read_idx: '", path_,
                 "' is larger than 4 GiB");
    stream_.next_in = reinterpret_cast<Bytef*>(file_.data());
    stream_.avail_in = static_cast<uInt>(file_.size());
    TANDEM_CHECK(IoError, inflateInit2(&stream_, kGzipWindowBits) == Z_OK, "read_idx: zlib cannot decompress '", path_,
                 "'");
  }
  ~Source() {
    if (compressed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// An upper bound of the number of bytes left.
  int64_t max_left() const {
    if (!compressed_) return static_cast<int64_t>(file_.size() - position_);
    return (static_cast<int64_t>(file_.size()) + 1) * kMaxDeflateRatio;
  }

  /// Reads up to `count` bytes; returns their number.
  int64_t read(uint8_t* out, int64_t count) {
    if (!compressed_) {
      const int64_t got = std::min(count, max_left());
      std::copy_n(file_.data() + position_, got, out);
      position_ += static_cast<size_t>(got);
      return got;
    }
    int64_t got = 0;
    while (got < count && !ended_) {
      const int64_t piece = std::min<int64_t>(count - got, 1 << 30);
      stream_.next_out = out + got;
      stream_.avail_out = static_cast<uInt>(piece);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      got += piece - stream_.avail_out;
      if (status == Z_STREAM_END) {
        ended_ = true;  // zlib has verified checksum and length
        TANDEM_CHECK(IoError, stream_.avail_in == 0, "read_idx: '", path_, "': ", stream_.avail_in,
                     " bytes follow the end of the gzip stream");
      } else {
        TANDEM_CHECK(IoError, status != Z_BUF_ERROR, "read_idx: '", path_, "': the gzip stream ends early");
        TANDEM_CHECK(IoError, status == Z_OK, "read_idx: '", path_,
                     "': the gzip stream is damaged: ", stream_.msg != nullptr ? stream_.msg : zError(status));
      }
    }
    return got;
  }

 private:
  const std::string& path_;
  bool compressed_;
  std::string file_;
  size_t position_ = 0;
  z_stream stream_ = {};
  bool ended_ = false;
};

}  // namespace

Tensor read_idx(const std::string& path) {
  Source source(path);
  std::array<uint8_t, 4> magic = {};
  const int64_t got = source.read(magic.data(), 4);
  TANDEM_CHECK(IoError, got == 4, "read_idx: '", path, "': magic number: the file has ", got,
               " bytes, expected at least 4");
  const auto hex = [](int byte) { return str(std::hex, std::setw(2), std::setfill('0'), byte); };
  TANDEM_CHECK(IoError, magic[0] == 0 && magic[1] == 0, "read_idx: '", path, "': magic number: begins with ",
               hex(magic[0]), " ", hex(magic[1]), ", expected 00 00");
  TANDEM_CHECK(IoError, magic[2] == kTypeUInt8, "read_idx: '", path, "': type code is ", hex(magic[2]),
               ", expected 08 (unsigned bytes)");
  const int num_dims = magic[3];
  TANDEM_CHECK(IoError, num_dims >= 1, "read_idx: '", path, "': number of dimensions is 0, expected at least 1");

  Shape shape;
  int64_t count = 1;
  int64_t address_space = 8;  // as in num_elements: sizes of 0 skipped, 8 bytes per element
  for (int d = 0; d < num_dims; ++d) {
    std::array<uint8_t, 4> bytes = {};
    TANDEM_CHECK(IoError, source.read(bytes.data(), 4) == 4, "read_idx: '", path, "': the file ends inside size ", d,
                 " of ", num_dims);
    const int64_t size = int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    shape.push_back(size);
    const bool overflow = __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
    TANDEM_CHECK(IoError, !overflow, "read_idx: '", path, "': the product of the sizes ", shape, " overflows");
    count *= size;
  }
  TANDEM_CHECK(IoError, count <= source.max_left(), "read_idx: '", path, "': the sizes ", shape, " need ", count,
               " bytes, the file has at most ", source.max_left());

  Tensor values = empty(shape, {kUInt8});
  const int64_t num_read = source.read(values.data<uint8_t>(), count);
  TANDEM_CHECK(IoError, num_read == count, "read_idx: '", path, "': the sizes ", shape, " need ", count,
               " bytes, the file ends after ", num_read);
  uint8_t beyond = 0;
  TANDEM_CHECK(IoError, source.read(&beyond, 1) == 0, "read_idx: '", path, "': bytes follow the ", count,
               " values of sizes ", shape);
  return values;
}

}}}  // namespace tandem::v0::data
