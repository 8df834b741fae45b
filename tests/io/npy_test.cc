#include <tandem/io/npy.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::Tensor;
using td::io::load_npy;
using td::io::save_npy;
using td::testing::error_text;
using td::testing::read_file;
using td::testing::write_file;

namespace {

/// A file of version 1.0 with this header.
std::string npy(const std::string& header, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}
std::string npy(const std::string& descr, const std::string& order, const std::string& shape, const std::string& data) {
  return npy("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + "}\n", data);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class Npy : public ::testing::Test {
 protected:
  Tensor load(const std::string& bytes) const {
    write_file(path_, bytes);
    return load_npy(path_);
  }
  /// The error text of load_npy for a file with these bytes, after the path.
  template <class E = td::IoError>
  std::string load_error(const std::string& bytes) const {
    write_file(path_, bytes);
    const std::string text = folder_.shortened(error_text<E>([&] { load_npy(path_); }));
    const std::string prefix = "load_npy: 'DIR/x.npy'";
    EXPECT_EQ(text.substr(0, prefix.size()), prefix);
    return text.size() < prefix.size() ? text : text.substr(prefix.size());
  }
  const td::testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "x.npy";
};

TEST_F(Npy, FileMatchesNpyFormatByteForByte) {
  save_npy(path_, td::from_vector<float>({1, -2, 0.5}, {3}));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  const std::string bytes = read_file(path_);
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, header.size()), header);
  EXPECT_EQ(bytes.substr(10 + header.size(), 128 - 11 - header.size()), std::string(117 - header.size(), ' '));
  EXPECT_EQ(bytes.substr(127), "\n" + bytes_of<float>({1, -2, 0.5}));
}

TEST_F(Npy, RoundTripKeepsEveryDtypeAndShape) {
  const std::vector<Tensor> tensors = {
      td::tensor({true, false, true}),           td::from_vector<uint8_t>({0, 128, 255}, {3, 1}),
      td::from_vector<int8_t>({-128, 127}, {2}), td::from_vector<int16_t>({-32768, 32767, 7}, {3}),
      td::from_vector<int32_t>({-5}, {1, 1, 1}), td::from_vector<int64_t>({INT64_MIN, INT64_MAX}, {2}),
      td::full({7}, 0.333, {td::kFloat16}),      td::full({3, 11}, -0.1),
      td::full({}, 0.1, {td::kFloat64}),         td::empty({0, 5})};
  for (const Tensor& tensor : tensors) {
    save_npy(path_, tensor);
    EXPECT_EQ((std::filesystem::file_size(path_) - static_cast<size_t>(tensor.num_bytes())) % 64, 0u);
    const Tensor loaded = load_npy(path_);
    EXPECT_EQ(loaded.dtype(), tensor.dtype());
    EXPECT_EQ(loaded.shape(), tensor.shape());
    const auto bytes = [](const Tensor& t) {
      return std::string(reinterpret_cast<const char*>(t.data_ptr()), static_cast<size_t>(t.num_bytes()));
    };
    if (tensor.numel() > 0) {
      EXPECT_EQ(bytes(loaded), bytes(tensor));
    }
  }
}

TEST_F(Npy, StridedAndDeviceTensorsAreSavedRowMajor) {
  td::set_cpu_device_count(2);
  const Tensor matrix = td::from_vector<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  save_npy(path_, td::make_view(matrix.storage(), td::kInt32, {3, 2}, {1, 3}, 0));
  EXPECT_EQ(load_npy(path_).to_vector<int32_t>(), (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
  save_npy(path_, td::full({3}, 7, {td::kFloat32, td::Device("cpu:1")}));
  EXPECT_EQ(load_npy(path_).to_vector<float>(), (std::vector<float>{7, 7, 7}));
}

TEST_F(Npy, FortranOrderAndVariantHeadersAreRead) {
  // numpy.save(numpy.asfortranarray([[1, 2, 3], [4, 5, 6]]))
  const Tensor matrix = load(npy("'<i4'", "True", "(2, 3)", bytes_of<int32_t>({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(matrix.shape(), td::Shape({2, 3}));
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(matrix.to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  std::vector<double> cube(24);
  for (size_t i = 0; i < 24; ++i) cube[i] = static_cast<double>(i);
  const Tensor fortran = load(npy("'<f8'", "True", "(2, 3, 4)", bytes_of(cube)));
  EXPECT_EQ(fortran.to_vector<double>()[1 * 12 + 2 * 4 + 3], 1 + 2 * 2 + 3 * 6);

  // Other valid forms of the header.
  EXPECT_EQ(
      load(npy("{ \"shape\":( 2,2, ),'fortran_order' :False ,\"descr\":\"=f4\",}  ", bytes_of<float>({1, 2, 3, 4})))
          .to_vector<float>(),
      (std::vector<float>{1, 2, 3, 4}));
  for (const char* descr : {"'|f8'", "'f8'"})  // with sizes as Python 2 wrote them
    EXPECT_EQ(load(npy(descr, "False", "(1L, 2L)", bytes_of<double>({1, 2}))).shape(), td::Shape({1, 2}));
  EXPECT_EQ(load(npy("'<u1'", "False", "(1,)", "\x05")).item<int64_t>(), 5);
  EXPECT_TRUE(load(npy("'|b1'", "True", "()", "\x01")).item<bool>());
}

TEST_F(Npy, FormatVersionsTwoAndThreeAreRead) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
  for (const char version : {2, 3}) {
    std::string bytes("\x93NUMPY", 6);
    bytes += version;
    bytes += std::string("\0", 1) + static_cast<char>(header.size()) + std::string("\0\0\0", 3);
    EXPECT_EQ(load(bytes + header + bytes_of<float>({2.5})).item<float>(), 2.5f);
  }
}

TEST_F(Npy, UnsupportedTensorsAndPathsAreRejected) {
  EXPECT_ERROR(td::StateError, save_npy(path_, Tensor()), "save_npy: the tensor is undefined");
  EXPECT_ERROR(td::DTypeError, save_npy(path_, td::full({1}, 1, {td::kBFloat16})),
               "save_npy: the format has no bfloat16; save float32, or use save_safetensors");
  EXPECT_ERROR(
      td::ShapeError, save_npy(path_, td::ones(td::Shape(65, 1))),
      "save_npy: the tensor has 65 dimensions, NumPy supports at most 64; flatten it, or use save_safetensors");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { save_npy(folder_ / "no/x.npy", td::ones({1})); })),
            "save_npy: cannot create 'DIR/no/x.npy.tmp0': No such file or directory");
}

TEST_F(Npy, NonNpyFilesAreRejected) {
  const std::string magic = " is not an .npy file: it does not begin with \\x93NUMPY and a version";
  EXPECT_EQ(load_error(""), magic);
  EXPECT_EQ(load_error("\x93NUMPY\x01"), magic);
  EXPECT_EQ(load_error("PK\x03\x04 an npz file"), magic);
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x09\x00xx", 10)), " has format version 9.0, expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x01\x02xx", 10)), " has format version 1.2, expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x01\x00x", 9)), " ends before the length of its header");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x02\x00xxx", 11)), " ends before the length of its header");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)),
            " claims a header of 4294967295 bytes, at most 10000 are supported");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x01\x00\x11\x27", 10) + std::string(20000, ' ')),
            " claims a header of 10001 bytes, at most 10000 are supported");
  EXPECT_EQ(load_error(std::string("\x93NUMPY\x01\x00\x03\x00{}", 12)),
            " claims a header of 3 bytes, the file has 2 after the length");
}

TEST_F(Npy, MalformedHeadersAreRejected) {
  const auto error = [&](const std::string& header) { return load_error(npy(header, "")); };
  EXPECT_EQ(error(""), ": header, byte 0: expected '{'");
  EXPECT_EQ(error("{}"), ": header, byte 2: the key 'descr' is missing");
  EXPECT_EQ(error("{'descr': '<f4'}"), ": header, byte 16: the key 'fortran_order' is missing");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False}"), ": header, byte 40: the key 'shape' is missing");
  EXPECT_EQ(error("{'descr': '<f4', 'descr': '<f4'}"), ": header, byte 24: the key 'descr' occurs twice");
  EXPECT_EQ(error("{'order': True}"), ": header, byte 8: unknown key 'order'");
  EXPECT_EQ(error("{'descr' '<f4'}"), ": header, byte 9: expected ':'");
  EXPECT_EQ(error("{'descr': '<f4' 'shape': ()}"), ": header, byte 16: expected '}'");
  EXPECT_EQ(error("{descr: 1}"), ": header, byte 1: expected a string");
  EXPECT_EQ(error("{'descr"), ": header, byte 7: the text ends inside a string");
  EXPECT_EQ(error("{'de\\x"), ": header, byte 4: an escape inside a string");
  EXPECT_EQ(error("{'descr': __import__('os')}"), ": header, byte 10: expected a string");
  EXPECT_EQ(error("{'fortran_order': 1}"), ": header, byte 18: expected True or False");
  EXPECT_EQ(error("{'shape': [2]}"), ": header, byte 10: expected '('");
  EXPECT_EQ(error("{'shape': (2)}"), ": header, byte 13: a tuple of one number needs a comma after it");
  EXPECT_EQ(error("{'shape': (2 3)}"), ": header, byte 13: expected ',' or ')'");
  EXPECT_EQ(error("{'shape': (,)}"), ": header, byte 11: expected a size that is not negative");
  EXPECT_EQ(error("{'shape': (-1,)}"), ": header, byte 11: expected a size that is not negative");
  EXPECT_EQ(error("{'shape': (9223372036854775808,)}"), ": header, byte 11: a size is above 2^63 - 1");
  std::string sizes;
  for (int i = 0; i < 65; ++i) sizes += "1,";
  EXPECT_EQ(error("{'shape': (" + sizes + ")}"), ": header, byte 139: more than 64 sizes");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x"),
            ": header, byte 54: text follows the closing brace");
}

TEST_F(Npy, UnsupportedElementTypesAreRejected) {
  const auto error = [&](const std::string& descr) {
    return load_error<td::DTypeError>(npy(descr, "False", "()", std::string(8, '\0')));
  };
  EXPECT_EQ(error("'|O'"), " has dtype '|O', which tandem does not support");
  EXPECT_EQ(error("'<U8'"), " has dtype '<U8', which tandem does not support");
  EXPECT_EQ(error("'<c16'"), " has dtype '<c16', which tandem does not support");
  EXPECT_EQ(error("''"), " has dtype '', which tandem does not support");
  EXPECT_EQ(error("[('x', '<f4')]"), " has records, which tandem does not support");
  EXPECT_EQ(error("'>f8'"),
            " has dtype '>f8', which is big-endian; save "
            "array.astype(array.dtype.newbyteorder('<'))");
}

TEST_F(Npy, SizesThatMismatchTheFileAreRejected) {
  EXPECT_EQ(load_error(npy("'<f4'", "False", "(3,)", std::string(11, 'x'))),
            ": float32 [3] needs 12 bytes, the file has 11 after its header");
  EXPECT_EQ(load_error(npy("'<f4'", "False", "(3,)", std::string(13, 'x'))),
            ": float32 [3] needs 12 bytes, the file has 13 after its header");
  EXPECT_EQ(load_error(npy("'|u1'", "False", "(1099511627776,)", "x")),
            ": uint8 [1099511627776] needs 1099511627776 bytes, the file has 1 after its header");
  EXPECT_EQ(load_error(npy("'|u1'", "False", "(4611686018427387904, 4)", "")),
            ": the number of elements of shape [4611686018427387904, 4] overflows");
  EXPECT_EQ(load_error(npy("'|u1'", "True", "(0, 4611686018427387904, 4)", "")),
            ": the number of elements of shape [0, 4611686018427387904, 4] overflows");
  EXPECT_EQ(load_error(npy("'|b1'", "False", "(3,)", std::string("\0\1\2", 3))), " has a bool that is neither 0 nor 1");
}

}  // namespace
