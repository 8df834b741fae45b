#include <tandem/io/state_file.h>

#include <bit>

#include <tandem/io/safetensors.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::State;
using td::io::load_state;
using td::io::save_safetensors;
using td::io::save_state;
using td::testing::error_text;
using td::testing::read_file;

namespace {

class StateFile : public ::testing::Test {
 protected:
  State round_trip(const State& state) const {
    save_state(path_, state);
    const std::string bytes = td::io::state_to_bytes(state);
    EXPECT_EQ(bytes, read_file(path_));
    EXPECT_EQ(td::io::state_to_bytes(td::io::state_from_bytes(bytes)), bytes);
    return load_state(path_);
  }
  /// The error text of load_state for a file with these tensors and this JSON, after the path.
  std::string load_error(const td::io::NamedTensors& tensors, const std::string& json) const {
    save_safetensors(path_, tensors, {{"state", json}});
    const std::string text = folder_.shortened(error_text<td::IoError>([&] { load_state(path_); }));
    EXPECT_EQ(error_text<td::IoError>([&] { td::io::state_from_bytes(read_file(path_), "DIR/x.safetensors"); }), text);
    const std::string prefix = "load_state: 'DIR/x.safetensors': ";
    EXPECT_EQ(text.substr(0, prefix.size()), prefix);
    return text.size() < prefix.size() ? text : text.substr(prefix.size());
  }

  const td::testing::TemporaryFolder folder_;
  const std::string path_ = folder_ / "x.safetensors";
};

TEST_F(StateFile, RoundTripKeepsValueTypesAndOrder) {
  State state;
  state.set("z", td::arange(0, 7));
  state.set("a.weight", td::tensor({0.5, -2.0}));
  state.set("a.nothing", State());
  state.set("a.name", std::string("quote\" \xc3\xa9\n"));
  state.set("a.deep.on", true);
  state.set("a.deep.off", false);
  state.set("lowest", std::numeric_limits<int64_t>::min());
  state.set("highest", std::numeric_limits<int64_t>::max());
  state.set("lr", 0.1);
  const State loaded = round_trip(state);

  std::vector<std::string> names;
  for (const auto& [name, value] : loaded.entries()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"z", "a", "lowest", "highest", "lr"}));
  EXPECT_EQ(loaded.get<td::Tensor>("z").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(loaded.get<td::Tensor>("a.weight").to_vector<float>(), (std::vector<float>{0.5, -2}));
  EXPECT_TRUE(loaded.get<State>("a.nothing").empty());
  EXPECT_EQ(loaded.get<std::string>("a.name"), "quote\" \xc3\xa9\n");
  EXPECT_TRUE(loaded.get<bool>("a.deep.on"));
  EXPECT_FALSE(loaded.get<bool>("a.deep.off"));
  EXPECT_EQ(loaded.get<int64_t>("lowest"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(loaded.get<int64_t>("highest"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(loaded.get<double>("lr"), 0.1);
}

TEST_F(StateFile, DoublesRoundTripBitExactly) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      1.0,
                                      -3.0,
                                      1e22,
                                      1.0 / 3,
                                      0.1 + 0.2,
                                      std::numeric_limits<double>::max(),
                                      std::numeric_limits<double>::min(),
                                      std::numeric_limits<double>::denorm_min(),
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity()};
  State state;
  for (size_t i = 0; i < values.size(); ++i) state.set("v" + std::to_string(i), values[i]);
  state.set("nan", std::nan(""));
  const State loaded = round_trip(state);
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = loaded.get<double>("v" + std::to_string(i));
    EXPECT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(values[i])) << values[i];
  }
  EXPECT_TRUE(std::isnan(loaded.get<double>("nan")));
}

TEST_F(StateFile, FormatIsSafetensorsWithJsonMetadata) {
  State state;
  state.set("fc.weight", td::ones({3}));
  state.set("fc.steps", int64_t{-4});
  state.set("lr", 2.0);
  state.set("bad", std::numeric_limits<double>::infinity());
  save_state(path_, state);
  const auto file = td::io::load_safetensors(path_);
  ASSERT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(file.tensors[0].first, "fc.weight");
  EXPECT_EQ(file.metadata.at("state"), R"({"fc": {"weight": null, "steps": -4}, "lr": 2.0, "bad": ["inf"]})");
  const std::string bytes = read_file(path_);
  save_state(path_, state);
  EXPECT_EQ(read_file(path_), bytes);
}

TEST_F(StateFile, MetadataHasTheFormatThatTransformersRequires) {
  State state;
  state.set("fc.weight", td::ones({3}));
  save_state(path_, state);
  EXPECT_EQ(td::io::load_safetensors(path_).metadata.at("format"), "pt");
}

TEST_F(StateFile, UnsupportedDTypesAreAnError) {
  const std::string header = R"({"a":{"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]}})";
  td::testing::write_file(path_, std::string("\x3a\0\0\0\0\0\0\0", 8) + header + "12345678");
  EXPECT_EQ(header.size(), 0x3au);
  EXPECT_EQ(folder_.shortened(error_text<td::DTypeError>([&] { load_state(path_); })),
            "load_state: 'DIR/x.safetensors': tensor 'a' has dtype F8_E5M2, which tandem does not support; use "
            "load_safetensors(), which skips such tensors");
}

TEST_F(StateFile, TensorsAreNotMapped) {
  State state;
  state.set("x", td::arange(0, 1000));
  save_state(path_, state);
  const int64_t before = td::memory_stats(td::Device()).allocated;
  const State loaded = load_state(path_);
  EXPECT_GE(td::memory_stats(td::Device()).allocated, before + 8000);
}

TEST_F(StateFile, TiedTensorsStayTied) {
  const td::Tensor shared = td::ones({2, 3});
  State state;
  state.set("embedding.weight", shared);
  state.set("head.weight", shared);
  const State loaded = round_trip(state);
  EXPECT_TRUE(loaded.get<td::Tensor>("head.weight").is_same(loaded.get<td::Tensor>("embedding.weight")));
}

TEST_F(StateFile, ForeignSafetensorsFilesAreRead) {
  save_safetensors(path_, {{"fc.weight", td::ones({3})}, {"scale", td::ones({})}}, {{"format", "pt"}});
  const State loaded = load_state(path_);
  EXPECT_EQ(loaded.get<td::Tensor>("fc.weight").numel(), 3);
  EXPECT_EQ(loaded.get<td::Tensor>("scale").dim(), 0);

  save_safetensors(path_, {{"a", td::ones({3})}, {"a.b", td::ones({3})}});
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { load_state(path_); })),
            "load_state: 'DIR/x.safetensors': a tensor's name is not a path of a state\n"
            "  State: 'a' is a value, not a nested state; 'a.b' cannot be set");
}

TEST_F(StateFile, UnsupportedStatesAreRejected) {
  State undefined;
  undefined.set("a.b", td::Tensor());
  EXPECT_ERROR(td::StateError, save_state(path_, undefined), "save_state: the tensor 'a.b' is undefined");
  State text;
  text.set("a.b", std::string("\xff"));
  EXPECT_ERROR(td::ValueError, save_state(path_, text), "save_state: the string 'a.b' is not valid UTF-8");
  State name;
  name.set("a.\xff", int64_t{1});
  EXPECT_ERROR(td::ValueError, save_state(path_, name), "save_state: the name 'a.\xff' is not valid UTF-8");
  std::string path = "x";
  for (int depth = 1; depth < 64; ++depth) path += ".x";
  State deep;
  deep.set(path, int64_t{5});
  EXPECT_EQ(round_trip(deep).get<int64_t>(path), 5);
  deep = {};
  deep.set(path + ".x", int64_t{5});
  EXPECT_ERROR(td::StateError, save_state(path_ + "2", deep), "save_state: the state is nested more than 64 deep");
  EXPECT_FALSE(std::filesystem::exists(path_ + "2"));
}

TEST_F(StateFile, MalformedJsonIsRejected) {
  const td::io::NamedTensors none;
  EXPECT_EQ(load_error(none, ""), "state, byte 0: the JSON ends too early");
  EXPECT_EQ(load_error(none, "[]"), "state, byte 1: expected an object, got an array");
  EXPECT_EQ(load_error(none, "{} x"), "state, byte 4: text follows the closing brace");
  EXPECT_EQ(load_error(none, R"({"a": 1, "a": 2})"), "state, byte 12: the entry 'a' occurs twice");
  EXPECT_EQ(load_error(none, R"({"b": {"a": 1, "a": 2}})"), "state, byte 18: the entry 'b.a' occurs twice");
  EXPECT_EQ(load_error(none, R"({"": 1})"),
            "state, byte 3: invalid name '' (expected a name that is not empty and has no '.')");
  EXPECT_EQ(load_error(none, R"({"a.b": 1})"),
            "state, byte 6: invalid name 'a.b' (expected a name that is not empty and has no '.')");
  EXPECT_EQ(load_error(none, R"({"a": 9223372036854775808})"),
            "state, byte 26: an integer is outside the range of 64 bits");
  EXPECT_EQ(load_error(none, R"({"a": 1e999})"), "state, byte 12: a number is outside the range of double");
  EXPECT_EQ(load_error(none, R"({"a": ["one"]})"), "state, byte 12: 'a': expected 'nan', 'inf' or '-inf', got 'one'");
  EXPECT_EQ(load_error(none, R"({"a": [1]})"),
            "state, byte 9: 'a': expected a string, got an integer that is not negative");
  EXPECT_EQ(load_error(none, R"({"a": [])"), "state, byte 8: expected one string in the array of 'a'");
  EXPECT_EQ(load_error(none, R"({"a": ["inf", "inf"]})"), "state, byte 19: expected one string in the array of 'a'");
  EXPECT_EQ(load_error(none, R"({"a": [["inf"]]})"), "state, byte 8: 'a': expected a string, got an array");
  EXPECT_EQ(load_error(none, R"({"a": [{}]})"), "state, byte 8: 'a': expected a string, got an object");
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += R"({"a": )";
  EXPECT_EQ(load_error(none, deep), "state, byte 385: nested more than 64 deep");
}

TEST_F(StateFile, TooManyEntriesAreRejected) {
  State state;
  std::string json = "{";
  for (int i = 0; i < 16385; ++i) {
    state.set("n" + std::to_string(i), int64_t{i});
    json += "\"n" + std::to_string(i) + "\": 1, ";
  }
  EXPECT_ERROR(td::StateError, save_state(path_, state),
               "save_state: a state has 16385 entries, at most 16384 are supported");
  EXPECT_EQ(load_error({}, json), "state, byte 201891: more than 16384 entries in one state");
}

TEST_F(StateFile, JsonAndTensorMismatchIsRejected) {
  EXPECT_EQ(load_error({{"a", td::ones({1})}}, R"({"b": null})"), "state, byte 10: the file has no tensor 'b'");
  EXPECT_EQ(load_error({{"a", td::ones({1})}, {"b.c", td::ones({1})}}, R"({"a": null})"),
            "the state does not name the tensor 'b.c', which is in the file");
}

}  // namespace
