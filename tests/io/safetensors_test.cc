#include <tandem/io/safetensors.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::io::load_safetensors;
using td::io::NamedTensors;
using td::io::save_safetensors;

namespace {

/// The 8 bytes before a header.
std::string length_of(uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(length >> shift);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return length_of(header.size()) + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  void write(const std::string& bytes) const { td::testing::write_file(path_, bytes); }
  std::string bytes() const { return td::testing::read_file(path_); }
  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  /// The text of the E that f throws, with the folder replaced by DIR.
  template <class E, class F>
  std::string error_of(F&& f) const {
    return folder_.shortened(td::testing::error_text<E>(f));
  }
  /// The error text of load_safetensors for a file with these bytes, after the path.
  template <class E = td::IoError>
  std::string load_error(const std::string& contents) const {
    write(contents);
    const std::string text = error_of<E>([&] { load_safetensors(path_); });
    const std::string prefix = "load_safetensors: 'DIR/model.safetensors'";
    EXPECT_EQ(text.substr(0, prefix.size()), prefix);
    return text.size() < prefix.size() ? text : text.substr(prefix.size());
  }
  /// load_error for a file with this header and 8 bytes of data.
  template <class E = td::IoError>
  std::string header_error(const std::string& header) const {
    return load_error<E>(file_of(header, std::string(8, '\0')));
  }

  td::testing::TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(Safetensors, FileMatchesReferenceFormatByteForByte) {
  // The output of safetensors.numpy.save for the same arrays.
  save_safetensors(path_, {{"b", td::tensor({1.0, -2.0})},
                           {"long", td::from_vector<int64_t>({-1}, {})},
                           {"a", td::from_vector<float>({0.5f}, {1, 1})},
                           {"mask", td::tensor({true, false, true})}});
  const std::string header = R"({"long":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
                             R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[20,23]}})";
  EXPECT_EQ(header.size() % 8, 2u);
  const std::string data("\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x3f\0\0\x80\x3f\0\0\0\xc0\1\0\1", 23);
  EXPECT_EQ(bytes(), file_of(header + "      ", data));
}

TEST_F(Safetensors, NoTensorsGiveHeaderOnlyFile) {
  save_safetensors(path_, {});
  EXPECT_EQ(bytes(), file_of("{}      ", ""));
  EXPECT_TRUE(load_safetensors(path_).tensors.empty());
}

TEST_F(Safetensors, EqualInputGivesEqualBytes) {
  const NamedTensors tensors = {{"x", td::arange(0, 7)}, {"y", td::ones({3})}};
  save_safetensors(path_, tensors, {{"b", "2"}, {"a", "1"}});
  const std::string first = bytes();
  save_safetensors(path_, {tensors[1], tensors[0]}, {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(bytes(), first);
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Safetensors, RoundTripKeepsEveryDtypeAndShape) {
  const NamedTensors tensors = {{"bool", td::tensor({true, false, true})},
                                {"uint8", td::from_vector<uint8_t>({0, 128, 255}, {3})},
                                {"int8", td::from_vector<int8_t>({-128, 0, 127}, {3})},
                                {"int16", td::from_vector<int16_t>({-32768, 32767}, {2})},
                                {"int32", td::from_vector<int32_t>({-5}, {1, 1, 1})},
                                {"int64", td::from_vector<int64_t>({INT64_MIN, INT64_MAX}, {2, 1})},
                                {"half", td::full({7}, 0.333, {td::kFloat16})},
                                {"bfloat", td::full({31}, 0.333, {td::kBFloat16})},
                                {"float", td::full({3, 11}, -0.1)},
                                {"double", td::full({}, 0.1, {td::kFloat64})},
                                {"nothing", td::empty({0, 5})},
                                {"not a number", td::full({2}, std::nan(""))}};
  save_safetensors(path_, tensors, {{"format", "pt"}});
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.metadata, (td::io::Metadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, expected] : tensors) {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(), [&, &n = name](const auto& t) { return t.first == n; });
    ASSERT_NE(found, file.tensors.end()) << name;
    EXPECT_EQ(found->second.dtype(), expected.dtype());
    EXPECT_EQ(found->second.shape(), expected.shape());
    EXPECT_EQ(std::string(reinterpret_cast<char*>(found->second.data_ptr()), static_cast<size_t>(expected.num_bytes())),
              std::string(reinterpret_cast<char*>(expected.data_ptr()), static_cast<size_t>(expected.num_bytes())))
        << name;
  }
}

TEST_F(Safetensors, ViewsAreWrittenRowMajor) {
  const td::Tensor matrix = td::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const td::Tensor transposed = td::make_view(matrix.storage(), td::kFloat32, {3, 2}, {1, 3}, 0);
  const td::Tensor expanded = td::make_view(matrix.storage(), td::kFloat32, {3, 2}, {0, 1}, 4);
  save_safetensors(path_, {{"t", transposed}, {"e", expanded}});
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.tensors[1].second.to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(file.tensors[0].second.to_vector<float>(), (std::vector<float>{5, 6, 5, 6, 5, 6}));
}

TEST_F(Safetensors, TensorsOnOtherDevicesAreWritten) {
  td::set_cpu_device_count(2);
  save_safetensors(path_, {{"x", td::full({33}, 3, {td::kFloat32, td::Device("cpu:1")})}});
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.tensors[0].second.device(), td::Device());
  EXPECT_EQ(file.tensors[0].second.to_vector<float>(), std::vector<float>(33, 3));
}

TEST_F(Safetensors, SpecialCharactersInNamesAreEscaped) {
  const std::string name = "quote\" back\\ tab\t bell\a \xc3\xa9 \xf0\x9f\x98\x80/";
  save_safetensors(path_, {{name, td::ones({1})}}, {{"a\nb", "\x1f\x7f"}});
  EXPECT_NE(bytes().find(R"({"__metadata__":{"a\nb":"\u001f)"
                         "\x7f"
                         R"("},"quote\" back\\ tab\t bell\u0007 )"),
            std::string::npos);
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.tensors[0].first, name);
  EXPECT_EQ(file.metadata.at("a\nb"), "\x1f\x7f");
}

TEST_F(Safetensors, TiedTensorsAreWrittenOnce) {
  const td::Tensor shared = td::arange(0, 5);
  const td::Tensor part = td::make_view(shared.storage(), td::kInt64, {4}, {1}, 0);  // has another shape: not an alias
  save_safetensors(
      path_,
      {{"encoder", shared}, {"decoder", shared}, {"part", part}, {"empty", td::empty({0})}, {"void", td::empty({0})}},
      {{"step", "3"}});
  EXPECT_NE(bytes().find(R"("__metadata__":{"alias:decoder":"encoder","step":"3"})"), std::string::npos);
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.metadata, (td::io::Metadata{{"step", "3"}}));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.tensors.back().first, "decoder");
  for (const auto& [name, tensor] : file.tensors) {
    EXPECT_EQ(tensor.is_same(file.tensors.back().second), name == "encoder" || name == "decoder") << name;
  }
}

TEST_F(Safetensors, InvalidNamesAndTensorsAreRejected) {
  const td::Tensor one = td::ones({1});
  const auto rejected = [&](const NamedTensors& tensors, const td::io::Metadata& metadata = {}) {
    return error_of<td::ValueError>([&] { save_safetensors(path_, tensors, metadata); });
  };
  EXPECT_EQ(rejected({{"", one}}), "save_safetensors: a tensor's name is empty");
  EXPECT_EQ(rejected({{"__metadata__", one}}), "save_safetensors: a tensor cannot be named '__metadata__'");
  EXPECT_EQ(rejected({{"x", one}, {"x", td::ones({2})}}), "save_safetensors: the name 'x' occurs twice");
  EXPECT_EQ(rejected({{std::string("a\0b", 3), one}}),
            "save_safetensors: the name that begins with 'a' contains a NUL");
  EXPECT_EQ(rejected({{"\xff", one}}), "save_safetensors: the name '\xff' is not valid UTF-8");
  EXPECT_EQ(rejected({}, {{"k", "\xed\xa0\x80"}}), "save_safetensors: the metadata 'k' is not valid UTF-8");
  EXPECT_EQ(rejected({}, {{"alias:x", "y"}}),
            "save_safetensors: the metadata key 'alias:x' begins with 'alias:', which is reserved for tied tensors");
  EXPECT_EQ(error_of<td::StateError>([&] {
              save_safetensors(path_, {{"x", td::Tensor()}});
            }),
            "save_safetensors: the tensor 'x' is undefined");
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(Safetensors, UnwritableFileErrorNamesTheReason) {
  EXPECT_EQ(error_of<td::IoError>([&] { save_safetensors(folder_ / "no/x", {}); }),
            "save_safetensors: cannot create 'DIR/no/x.tmp0': No such file or directory");
  std::filesystem::create_directory(path_);
  EXPECT_EQ(error_of<td::IoError>([&] { save_safetensors(path_, {}); }),
            "save_safetensors: cannot replace 'DIR/model.safetensors': Is a directory");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Safetensors, FailedWriteKeepsTheOldFile) {
  save_safetensors(path_, {{"x", td::ones({3})}});
  const std::string before = bytes();
  struct rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = error_of<td::IoError>([&] { save_safetensors(path_, {{"x", td::ones({3000})}}); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(text, "save_safetensors: cannot write 'DIR/model.safetensors.tmp0': File too large");
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Safetensors, TemporaryFilesOfKilledWritersAreRemoved) {
  for (const char* suffix : {".tmp0", ".tmp1", ".tmp2", ".tmp3"}) std::ofstream(path_ + suffix) << "half a file";
  std::filesystem::permissions(path_ + ".tmp0", std::filesystem::perms::owner_all);
  const int writer = ::open((path_ + ".tmp1").c_str(), O_WRONLY | O_CLOEXEC);  // another writer
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  std::filesystem::create_symlink(path_ + ".other", path_ + ".tmp4");
  for (const int64_t size : {3, 2}) {
    save_safetensors(path_, {{"x", td::ones({size})}});
    EXPECT_EQ(load_safetensors(path_).tensors[0].second.shape(), td::Shape({size}));
    EXPECT_EQ(files_in_folder(), 3u);
    EXPECT_EQ(td::testing::read_file(path_ + ".tmp1"), "half a file");
    EXPECT_TRUE(std::filesystem::is_symlink(path_ + ".tmp4"));
    EXPECT_NE(std::filesystem::status(path_).permissions(), std::filesystem::perms::owner_all);
  }
  ::close(writer);
  save_safetensors(path_, {});
  EXPECT_EQ(files_in_folder(), 2u);
}

TEST_F(Safetensors, ManyDimensionsAreKept) {
  const td::Shape shape(100, 1), zero = {0, int64_t{1} << 58};
  save_safetensors(path_, {{"x", td::full(shape, 7)}, {"zero", td::empty(zero)}});
  const auto file = load_safetensors(path_);
  EXPECT_EQ(file.tensors[0].second.shape(), shape);
  EXPECT_EQ(file.tensors[0].second.item<float>(), 7);
  EXPECT_EQ(file.tensors[1].second.shape(), zero);
}

constexpr const char* kGood = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(Safetensors, WhitespaceAndEscapesInHeadersAreRead) {
  write(file_of(R"( { "\u0078\ud83d\ude00\/" : { "data_offsets" : [ 0 , 8 ] , "shape":[ 2 ],"dtype"  :"F32" } })"
                "\n\t ",
                std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
  const auto file = load_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.tensors[0].first, "x\xf0\x9f\x98\x80/");
  EXPECT_EQ(file.tensors[0].second.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST_F(Safetensors, InvalidHeaderLengthsAreRejected) {
  EXPECT_EQ(load_error(""), " has 0 bytes, expected at least 8");
  EXPECT_EQ(load_error("1234567"), " has 7 bytes, expected at least 8");
  EXPECT_EQ(load_error(length_of(100000001)),
            " claims a header of 100000001 bytes, the format allows at most 100000000");
  EXPECT_EQ(load_error(length_of(UINT64_MAX)),
            " claims a header of 18446744073709551615 bytes, the format allows at most 100000000");
  EXPECT_EQ(load_error(length_of(3) + "{}"), " claims a header of 3 bytes, the file has 2 after the length");
  EXPECT_EQ(load_error(length_of(0)), ": header, byte 0: the JSON ends too early");
}

TEST_F(Safetensors, MalformedHeadersAreRejected) {
  EXPECT_EQ(header_error("[]"), ": header, byte 1: expected an object, got an array");
  EXPECT_EQ(header_error("{"), ": header, byte 1: the JSON ends too early");
  EXPECT_EQ(header_error("\xef\xbb\xbf{}"), ": header, byte 0: the text begins with a byte order mark");
  EXPECT_EQ(header_error("{\"x\":0}"),
            ": header, byte 7: 'x': expected an object, got an integer that is not negative");
  EXPECT_EQ(header_error(std::string(kGood) + "x"), ": header, byte 55: text follows the closing brace");
  EXPECT_EQ(header_error("{\"a\\u0000\":{}}"), ": header, byte 10: the name that begins with 'a' contains a NUL");
}

TEST_F(Safetensors, EntriesOutsideTheSchemaAreRejected) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string f32 = "\"F32\"";
  EXPECT_EQ(header_error(entry("\"\"", "[2]", "[0,8]")), ": header, byte 16: tensor 'x': the dtype is empty");
  EXPECT_EQ(header_error(entry("1", "[2]", "[0,8]")),
            ": header, byte 16: tensor 'x': dtype: expected a string, got an integer that is not negative");
  EXPECT_EQ(header_error(entry(f32, "[-2]", "[0,8]")),
            ": header, byte 32: tensor 'x': shape: expected an integer that is not negative, got a negative integer");
  EXPECT_EQ(
      header_error(entry(f32, "[2.0]", "[0,8]")),
      ": header, byte 33: tensor 'x': shape: expected an integer that is not negative, got a floating-point number");
  EXPECT_EQ(
      header_error(entry(f32, "[2e0]", "[0,8]")),
      ": header, byte 33: tensor 'x': shape: expected an integer that is not negative, got a floating-point number");
  EXPECT_EQ(header_error(entry(f32, "[9223372036854775808]", "[0,8]")),
            ": header, byte 49: an integer is outside the range of 64 bits");
  EXPECT_EQ(header_error(entry(f32, "[2", "[0,8]")),
            ": header, byte 45: tensor 'x': shape: expected an integer that is not negative, got a string");
  EXPECT_EQ(header_error(entry(f32, "2", "[0,8]")),
            ": header, byte 30: tensor 'x': shape: expected an array, got an integer that is not negative");
  EXPECT_EQ(header_error(entry(f32, "[2]", "[0]")),
            ": header, byte 50: tensor 'x': data_offsets has 1 numbers, expected 2");
  EXPECT_EQ(header_error(entry(f32, "[2]", "[0,8,8]")),
            ": header, byte 54: tensor 'x': data_offsets has more than 2 numbers");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","shape":[2]}})"),
            ": header, byte 32: tensor 'x': the field 'data_offsets' is missing");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})"),
            ": header, byte 41: tensor 'x': the field 'shape' is missing");
  EXPECT_EQ(header_error(R"({"x":{"shape":[2],"data_offsets":[0,8]}})"),
            ": header, byte 39: tensor 'x': the field 'dtype' is missing");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","dtype":"F32"}})"),
            ": header, byte 27: tensor 'x': the field 'dtype' occurs twice");
  EXPECT_EQ(header_error(R"({"x":{"strides":[1]}})"), ": header, byte 15: tensor 'x': unknown field 'strides'");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{}})"),
            ": header, byte 57: the name 'x' occurs twice");
  EXPECT_EQ(header_error(R"({"__metadata__":{"a":1}})"),
            ": header, byte 23: __metadata__: 'a': expected a string, got an integer that is not negative");
  EXPECT_EQ(header_error(R"({"__metadata__":{"a":"1","a":"2"}})"),
            ": header, byte 28: __metadata__: the key 'a' occurs twice");
}

TEST_F(Safetensors, InconsistentDataRangesAreRejected) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  write(file_of(two("[4,8]", "[0,4]"), std::string(8, '\0')));
  EXPECT_EQ(load_safetensors(path_).tensors[0].first, "b");  // any order is allowed

  EXPECT_EQ(header_error(two("[0,4]", "[5,8]")), ": tensor 'b' has bytes 5 to 8, expected a range that begins at 4");
  EXPECT_EQ(header_error(two("[0,4]", "[3,7]")), ": tensor 'b' has bytes 3 to 7, expected a range that begins at 4");
  EXPECT_EQ(header_error(two("[1,5]", "[5,8]")), ": tensor 'a' has bytes 1 to 5, expected a range that begins at 0");
  EXPECT_EQ(header_error(two("[0,4]", "[4,3]")), ": tensor 'b' has bytes 4 to 3, whose end is before its begin");
  EXPECT_EQ(header_error(two("[0,4]", "[4,7]")), ": tensor 'b' of float32 [1] needs 4 bytes, its range has 3");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})"),
            ": the number of elements of tensor 'x' of shape [4611686018427387904, 4] overflows");
  EXPECT_EQ(header_error(R"({"x":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})"),
            ": the number of elements of tensor 'x' of shape [0, 4611686018427387904, 4] overflows");
  EXPECT_EQ(load_error(file_of(kGood, std::string(7, '\0'))),
            ": the tensors end at byte 8 of the data, the file has 7");
  EXPECT_EQ(load_error(file_of(kGood, std::string(9, '\0'))),
            ": the tensors end at byte 8 of the data, the file has 9");
  EXPECT_EQ(load_error(file_of("{}", "x")), ": the tensors end at byte 0 of the data, the file has 1");
}

TEST_F(Safetensors, NullMetadataIsNone) {
  write(file_of(R"({"__metadata__":null,"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "\5"));
  EXPECT_EQ(load_safetensors(path_).tensors[0].second.item<int64_t>(), 5);
}

TEST_F(Safetensors, TensorsOfUnsupportedDTypesAreSkipped) {
  write(file_of(R"({"__metadata__":{"alias:tied":"scales","alias:y":"x"},)"
                R"("weights":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},)"
                R"("scales":{"dtype":"U16","shape":[2],"data_offsets":[11,15]},)"
                R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("packed":{"dtype":"of the future","shape":[2],"data_offsets":[15,16]}})",
                std::string("\0\0\x80\x3f\0\0\0\x40\1\2\3\4\5\6\7\x08", 16)));
  const auto file = load_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].first, "x");
  EXPECT_EQ(file.tensors[0].second.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.tensors[1].first, "y");
  using Skipped = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(file.skipped,
            (Skipped{{"weights", "F8_E4M3"}, {"scales", "U16"}, {"packed", "of the future"}, {"tied", "U16"}}));
}

TEST_F(Safetensors, SkippedTensorsMustBeValid) {
  EXPECT_EQ(header_error(R"({"x":{"dtype":"U16","shape":[4],"data_offsets":[1,9]}})"),
            ": tensor 'x' has bytes 1 to 9, expected a range that begins at 0");
  EXPECT_EQ(header_error(R"({"__metadata__":{"alias:x":"x"},"x":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})"),
            ": 'x' is both a tensor and an alias");
}

TEST_F(Safetensors, WritesToMappedTensorsDoNotChangeTheFile) {
  save_safetensors(path_, {{"x", td::arange(0, 1000)}});
  const std::string before = bytes();
  const auto file = load_safetensors(path_);
  td::primitives::fill(file.tensors[0].second, -1);
  EXPECT_EQ(file.tensors[0].second.to_vector<int64_t>(), std::vector<int64_t>(1000, -1));
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(load_safetensors(path_).tensors[0].second.to_vector<int64_t>()[7], 7);
}

TEST_F(Safetensors, MappedTensorsSurviveTheFileAndItsReplacement) {
  const auto loaded = [&] {
    save_safetensors(path_, {{"x", td::arange(0, 1000)}, {"y", td::ones({3})}});
    return load_safetensors(path_).tensors[0].second;  // the other tensors are destroyed
  };
  const td::Tensor replaced = loaded();
  save_safetensors(path_, {{"x", td::arange(5, 1005)}});
  EXPECT_EQ(replaced.to_vector<int64_t>()[999], 999);
  const td::Tensor removed = loaded();
  std::filesystem::remove(path_);
  EXPECT_EQ(removed.to_vector<int64_t>()[999], 999);
}

TEST_F(Safetensors, TensorsAreMappedOrRead) {
  save_safetensors(path_, {{"x", td::arange(0, 1000)}});
  const int64_t before = td::memory_stats(td::Device()).allocated;
  const auto mapped = load_safetensors(path_);
  EXPECT_EQ(td::memory_stats(td::Device()).allocated, before);
  const auto read = load_safetensors(path_, {.mmap = false});
  EXPECT_GE(td::memory_stats(td::Device()).allocated, before + 8000);
  EXPECT_EQ(read.tensors[0].second.to_vector<int64_t>(), mapped.tensors[0].second.to_vector<int64_t>());
}

TEST_F(Safetensors, VersionsOfMappedTensorsAreIndependent) {
  save_safetensors(path_, {{"x", td::ones({3})}, {"y", td::ones({3})}});
  const auto file = load_safetensors(path_);
  file.tensors[0].second.storage()->bump_version("fill_");
  EXPECT_EQ(file.tensors[0].second.version(), 1u);
  EXPECT_EQ(file.tensors[1].second.version(), 0u);
}

// Programs that do not pad the header, or do not sort by dtype, write tensors at any position.
TEST_F(Safetensors, UnalignedTensorsAreCopied) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  for (int spaces = 0; spaces < 8; ++spaces, header += ' ') {
    write(file_of(header, std::string("\x05\0\0\0\0\0\0\xf0\x3f", 9)));
    const auto file = load_safetensors(path_);
    EXPECT_EQ(file.tensors[0].second.item<int64_t>(), 5);
    EXPECT_EQ(file.tensors[1].second.item<double>(), 1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.tensors[1].second.data_ptr()) % alignof(double), 0u);
  }
}

TEST_F(Safetensors, BoolBytesOtherThanZeroOneAreRejected) {
  EXPECT_EQ(load_error(file_of(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\2", 3))),
            ": tensor 'x' of bool has a byte that is neither 0 nor 1");
}

TEST_F(Safetensors, InvalidAliasesAreRejected) {
  EXPECT_EQ(header_error(R"({"__metadata__":{"alias:y":"z"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
            ": 'y' is an alias of 'z', which is not in the file");
  EXPECT_EQ(header_error(R"({"__metadata__":{"alias:x":"x"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
            ": 'x' is both a tensor and an alias");
}

TEST_F(Safetensors, EveryTruncationIsRejected) {
  save_safetensors(path_, {{"x", td::ones({3})}, {"y", td::arange(0, 3)}});
  const std::string whole = bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    EXPECT_THROW(load_safetensors(path_), td::IoError) << size;
  }
}

TEST_F(Safetensors, CorruptHeaderBytesNeverCrash) {
  save_safetensors(path_, {{"x", td::ones({3})}, {"y", td::arange(0, 3)}}, {{"k", "v"}});
  const std::string whole = bytes();
  const size_t header_end = whole.find_last_of('}') + 1;
  for (size_t at = 0; at < header_end; ++at) {
    for (const char flip : {1, 4, 16, 127}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      write(damaged);
      try {
        const auto file = load_safetensors(path_);  // a changed letter of a name, key or value is a valid file
        EXPECT_EQ(file.tensors.size() + file.skipped.size(), 2u);
      } catch (const td::Error&) {
      }
    }
  }
}

TEST_F(Safetensors, UnreadableFileErrorNamesTheReason) {
  EXPECT_EQ(error_of<td::IoError>([&] { load_safetensors(path_); }),
            "load_safetensors: cannot open 'DIR/model.safetensors': No such file or directory");
  EXPECT_EQ(error_of<td::IoError>([&] { load_safetensors(folder_.path()); }),
            "load_safetensors: 'DIR' is a folder, not a regular file");
}

}  // namespace
