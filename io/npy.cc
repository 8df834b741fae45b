#include <tandem/io/npy.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string_view>
#include <system_error>

#include <tandem/base/file.h>
#include <tandem/io/atomic_file.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

static_assert(std::endian::native == std::endian::little, "values are written and read without conversion");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kVersionEnd = 8;              // the magic string and two bytes of version
constexpr int64_t kMaxNpyHeaderBytes = 10'000;  // NumPy's limit
constexpr size_t kMaxDims = 64;                 // NumPy's limit
constexpr size_t kAlignment = 64;

struct Descr {
  const char* name;
  DType dtype;
};
constexpr std::array<Descr, 9> kDescrs = {{{"|b1", kBool},
                                           {"|u1", kUInt8},
                                           {"|i1", kInt8},
                                           {"<i2", kInt16},
                                           {"<i4", kInt32},
                                           {"<i8", kInt64},
                                           {"<f2", kFloat16},
                                           {"<f4", kFloat32},
                                           {"<f8", kFloat64}}};

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

/// Parses the header: a Python literal of a dictionary with three known keys.
class Parser {
 public:
  Parser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  NpyHeader header() {
    NpyHeader result;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      bool& seen = key == "descr" ? has_descr : key == "fortran_order" ? has_order : has_shape;
      check(&seen != &has_shape || key == "shape", "unknown key '", key, "'");
      check(!seen, "the key '", key, "' occurs twice");
      seen = true;
      expect(':');
      if (&seen == &has_descr) {
        result.descr = descr();
      } else if (&seen == &has_order) {
        result.fortran_order = boolean();
      } else {
        result.shape = tuple();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    check(has_descr, "the key 'descr' is missing");
    check(has_order, "the key 'fortran_order' is missing");
    check(has_shape, "the key 'shape' is missing");
    skip_space();
    check(position_ == text_.size(), "text follows the closing brace");
    return result;
  }

 private:
  template <class... Args>
  void check(bool condition, const Args&... what) const {
    TANDEM_CHECK(IoError, condition, "load_npy: '", path_, "': header, byte ", position_, ": ", what...);
  }
  void skip_space() {
    while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }
  bool accept(char c) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) { check(accept(c), "expected '", c, "'"); }

  /// A string without escapes.
  std::string_view string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') check(accept('"'), "expected a string");
    const size_t begin = position_;
    while (position_ < text_.size() && text_[position_] != quote) {
      check(text_[position_] != '\\', "an escape inside a string");
      ++position_;
    }
    check(position_ < text_.size(), "the text ends inside a string");
    return text_.substr(begin, position_++ - begin);
  }

  std::string descr() {
    skip_space();
    const bool is_record = position_ < text_.size() && text_[position_] == '[';
    TANDEM_CHECK(DTypeError, !is_record, "load_npy: '", path_, "' has records, which tandem does not support");
    return std::string(string());
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(position_, word.size()) != word) continue;
      position_ += word.size();
      return word == "True";
    }
    check(false, "expected True or False");
    return false;
  }

  /// "()", "(3,)", "(2, 3)", "(2, 3,)"
  Shape tuple() {
    Shape shape;
    bool ends_in_comma = false;
    expect('(');
    while (!accept(')')) {
      check(shape.empty() || ends_in_comma, "expected ',' or ')'");
      check(shape.size() < kMaxDims, "more than ", kMaxDims, " sizes");
      shape.push_back(number());
      ends_in_comma = accept(',');
    }
    check(shape.size() != 1 || ends_in_comma, "a tuple of one number needs a comma after it");
    return shape;
  }

  int64_t number() {
    skip_space();
    int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto result = std::from_chars(text_.data() + position_, end, value);
    check(result.ec != std::errc::result_out_of_range, "a size is above 2^63 - 1");
    check(result.ec == std::errc() && value >= 0, "expected a size that is not negative");
    position_ = static_cast<size_t>(result.ptr - text_.data());
    accept('L');  // NumPy for Python 2 wrote 2L
    return value;
  }

  const std::string& path_;
  std::string_view text_;
  size_t position_ = 0;
};

DType dtype_of_descr(const std::string& path, const std::string& descr) {
  // '=', '|' or nothing is the native byte order. Single bytes have no byte order, so any sign is accepted.
  std::string_view name = descr;
  const bool has_sign = !name.empty() && std::string_view("<=|>").find(name[0]) != std::string_view::npos;
  if (has_sign && (name[0] != '>' || name.ends_with('1'))) name.remove_prefix(1);
  for (const Descr& known : kDescrs) {
    if (name == known.name + 1) return known.dtype;
  }
  TANDEM_CHECK(DTypeError, !name.starts_with('>'), "load_npy: '", path, "' has dtype '", descr,
               "', which is big-endian; save array.astype(array.dtype.newbyteorder('<'))");
  throw DTypeError(str("load_npy: '", path, "' has dtype '", descr, "', which tandem does not support"));
}

}  // namespace

void save_npy(const std::string& path, const Tensor& tensor) {
  TANDEM_CHECK(StateError, tensor.defined(), "save_npy: the tensor is undefined");
  const auto* known =
      std::find_if(kDescrs.begin(), kDescrs.end(), [&](const Descr& d) { return d.dtype == tensor.dtype(); });
  TANDEM_CHECK(DTypeError, known != kDescrs.end(), "save_npy: the format has no ", tensor.dtype(),
               "; save float32, or use save_safetensors");
  TANDEM_CHECK(ShapeError, tensor.shape().size() <= kMaxDims, "save_npy: the tensor has ", tensor.dim(),
               " dimensions, NumPy supports at most ", kMaxDims, "; flatten it, or use save_safetensors");
  Tensor values = tensor;
  if (!tensor.device().is_cpu() || !tensor.is_contiguous()) {
    values = empty(tensor.shape(), {tensor.dtype()});
    primitives::copy(tensor, values);
  }
  std::string text = str("{'descr': '", known->name, "', 'fortran_order': False, 'shape': (");
  for (size_t d = 0; d < values.shape().size(); ++d) text += str(d == 0 ? "" : ", ", values.shape()[d]);
  text += values.dim() == 1 ? ",), }" : "), }";
  // Spaces pad the header, so that the data begins at a multiple of 64 bytes.
  const size_t before = static_cast<size_t>(kVersionEnd) + sizeof(uint16_t);
  const size_t length = (before + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - before;
  text.resize(length - 1, ' ');
  text += '\n';
  const auto length_field = static_cast<uint16_t>(length);  // fits: at most 64 sizes of 19 digits

  AtomicFile file("save_npy", path);
  file.write(kMagic.data(), kMagic.size());
  file.write("\x01\x00", 2);
  file.write(&length_field, sizeof length_field);
  file.write(text.data(), text.size());
  file.write(values.data_ptr(), static_cast<size_t>(values.num_bytes()));
  file.commit();
}

Tensor load_npy(const std::string& path) {
  const InputFile file("load_npy", path);
  std::array<char, kVersionEnd> start = {};
  const bool has_start = file.size() >= kVersionEnd;
  if (has_start) file.read(start.data(), 0, kVersionEnd);
  TANDEM_CHECK(IoError, has_start && std::string_view(start.data(), kMagic.size()) == kMagic, "load_npy: '", path,
               "' is not an .npy file: it does not begin with \\x93NUMPY and a version");
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  TANDEM_CHECK(IoError, major >= 1 && major <= 3 && minor == 0, "load_npy: '", path, "' has format version ", major,
               ".", minor, ", expected 1.0, 2.0 or 3.0");
  const int64_t length_bytes = major == 1 ? 2 : 4;
  TANDEM_CHECK(IoError, file.size() >= kVersionEnd + length_bytes, "load_npy: '", path,
               "' ends before the length of its header");
  uint32_t length = 0;
  file.read(&length, kVersionEnd, length_bytes);
  TANDEM_CHECK(IoError, length <= kMaxNpyHeaderBytes, "load_npy: '", path, "' claims a header of ", length,
               " bytes, at most ", kMaxNpyHeaderBytes, " are supported");
  const int64_t data_start = kVersionEnd + length_bytes + length;
  TANDEM_CHECK(IoError, data_start <= file.size(), "load_npy: '", path, "' claims a header of ", length,
               " bytes, the file has ", file.size() - kVersionEnd - length_bytes, " after the length");
  std::string text(length, '\0');
  file.read(text.data(), kVersionEnd + length_bytes, length);
  const NpyHeader header = Parser(path, text).header();
  const DType dtype = dtype_of_descr(path, header.descr);

  int64_t address_space = sizeof(int64_t);  // as in num_elements: sizes of 0 skipped, 8 bytes per element
  int64_t num_bytes = size_of(dtype);
  for (const int64_t size : header.shape) {
    const bool overflow = __builtin_mul_overflow(address_space, std::max<int64_t>(size, 1), &address_space);
    TANDEM_CHECK(IoError, !overflow, "load_npy: '", path, "': the number of elements of shape ", header.shape,
                 " overflows");
    num_bytes *= size;
  }
  TANDEM_CHECK(IoError, num_bytes == file.size() - data_start, "load_npy: '", path, "': ", dtype, " ", header.shape,
               " needs ", num_bytes, " bytes, the file has ", file.size() - data_start, " after its header");

  // Data in Fortran order is the row-major data of the array with reversed dimensions.
  Shape shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  Tensor values = empty(shape, {dtype});
  file.read(values.data_ptr(), data_start, num_bytes);
  if (dtype == kBool) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data_ptr());
    const bool valid = std::all_of(bytes, bytes + values.numel(), [](uint8_t byte) { return byte <= 1; });
    TANDEM_CHECK(IoError, valid, "load_npy: '", path, "' has a bool that is neither 0 nor 1");
  }
  if (!header.fortran_order || shape.size() < 2) return values;
  Shape strides = values.strides();
  std::reverse(strides.begin(), strides.end());
  Tensor result = empty(header.shape, {dtype});
  primitives::copy(make_view(values.storage(), dtype, header.shape, strides, 0), result);
  return result;
}

}}}  // namespace tandem::v0::io
