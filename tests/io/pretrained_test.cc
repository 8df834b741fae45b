#include <tandem/io/pretrained.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::io::load_pretrained;
using td::io::NamedTensors;
using td::io::save_pretrained;
using td::io::save_safetensors;
using td::testing::error_text;
using td::testing::read_file;
using td::testing::write_file;

namespace {

using Names = std::vector<std::string>;

template <class Named>
Names names(const Named& named) {
  Names result;
  for (const auto& [name, value] : named) result.push_back(name);
  return result;
}

const std::string kIndex = "model.safetensors.index.json";
const std::string kFirst = "model-00001-of-00002.safetensors";
const std::string kSecond = "model-00002-of-00002.safetensors";

class Pretrained : public ::testing::Test {
 protected:
  /// The sorted names of the folder's files.
  Names files() const {
    Names result;
    for (const auto& entry : fs::directory_iterator(folder_.path())) result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }
  std::string load_error() const {
    return folder_.shortened(error_text<td::IoError>([&] { load_pretrained(folder_.path()); }));
  }
  /// The error of an index with this text, after the path.
  std::string index_error(const std::string& text) const {
    write_file(folder_ / kIndex, text);
    const std::string error = load_error();
    const std::string prefix = "load_pretrained: 'DIR/model.safetensors.index.json': ";
    EXPECT_EQ(error.substr(0, prefix.size()), prefix);
    return error.size() < prefix.size() ? error : error.substr(prefix.size());
  }
  /// Two files with a tensor each, and an index with this weight_map.
  void write_shards(const std::string& weight_map) const {
    save_safetensors(folder_ / kFirst, {{"a", td::ones({2})}});
    save_safetensors(folder_ / kSecond, {{"b", td::ones({3})}});
    write_file(folder_ / kIndex, R"({"metadata": {"total_size": 20}, "weight_map": )" + weight_map + "}");
  }

  td::testing::TemporaryFolder folder_;
  const NamedTensors tensors_ = {{"z", td::arange(0, 3)},      // 24 bytes
                                 {"b", td::full({4}, 0.5)},    // 16
                                 {"a", td::full({2, 2}, -1)},  // 16
                                 {"big", td::full({20}, 2)},   // 80
                                 {"c", td::full({1}, 3)}};     // 4
};

TEST_F(Pretrained, SmallWeightsAreOneFileOfFormatPt) {
  save_pretrained(folder_.path(), tensors_);
  EXPECT_EQ(files(), Names{"model.safetensors"});
  const auto file = load_pretrained(folder_.path());
  EXPECT_EQ(file.metadata, (td::io::Metadata{{"format", "pt"}}));
  EXPECT_EQ(names(file.tensors), (Names{"z", "a", "b", "big", "c"}));
}

TEST_F(Pretrained, ShardsHaveConsecutiveTensorsUpToTheSize) {
  save_pretrained(folder_.path(), tensors_, {.max_shard_size = 40});
  EXPECT_EQ(read_file(folder_ / kIndex),
            "{\n"
            "  \"metadata\": {\n"
            "    \"total_size\": 140\n"
            "  },\n"
            "  \"weight_map\": {\n"
            "    \"a\": \"model-00002-of-00004.safetensors\",\n"
            "    \"b\": \"model-00001-of-00004.safetensors\",\n"
            "    \"big\": \"model-00003-of-00004.safetensors\",\n"
            "    \"c\": \"model-00004-of-00004.safetensors\",\n"
            "    \"z\": \"model-00001-of-00004.safetensors\"\n"
            "  }\n"
            "}\n");
  EXPECT_EQ(files().size(), 5u);
  for (const std::string& name : files()) {
    if (name == kIndex) continue;
    EXPECT_EQ(td::io::load_safetensors(folder_ / name).metadata.at("format"), "pt") << name;
  }
  for (const bool mmap : {true, false}) {
    const auto file = load_pretrained(folder_.path(), {.mmap = mmap});
    EXPECT_EQ(names(file.tensors), (Names{"z", "b", "a", "big", "c"}));
    EXPECT_EQ(file.metadata, (td::io::Metadata{{"format", "pt"}}));
    for (const auto& [name, tensor] : file.tensors) {
      const auto saved = std::find_if(tensors_.begin(), tensors_.end(),
                                      [&, &n = name](const auto& entry) { return entry.first == n; });
      EXPECT_EQ(tensor.to_vector<float>(), saved->second.to_vector<float>()) << name;
    }
  }
}

TEST_F(Pretrained, TiedTensorsAreWrittenUnderTheirFirstName) {
  const td::Tensor shared = td::ones({10});
  const NamedTensors tensors = {{"embedding", shared}, {"layer", td::ones({10})}, {"head", shared}};
  for (const int64_t size : {1000, 40}) {
    save_pretrained(folder_.path(), tensors, {.max_shard_size = size});
    const auto file = load_pretrained(folder_.path());
    EXPECT_EQ(names(file.tensors), (Names{"embedding", "layer"}));
    EXPECT_EQ(file.metadata, (td::io::Metadata{{"format", "pt"}}));
  }
  EXPECT_EQ(read_file(folder_ / kIndex).find("head"), std::string::npos);
}

TEST_F(Pretrained, FilesOfEarlierWeightsAreRemoved) {
  const auto save = [&](int64_t size) { save_pretrained(folder_.path(), tensors_, {.max_shard_size = size}); };
  write_file(folder_ / "model-1-of-2.safetensors", "not a name of a shard");
  write_file(folder_ / "model-00001-of-00009.safetensors.old", "not one either");
  write_file(folder_ / "other-00001-of-00002.safetensors", "of other weights");
  const Names others = files();
  const auto expect_files = [&](Names expected) {
    expected.insert(expected.end(), others.begin(), others.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(files(), expected);
    EXPECT_EQ(load_pretrained(folder_.path()).tensors.size(), 5u);
  };
  save(1000);
  expect_files({"model.safetensors"});
  save(100);
  expect_files({kFirst, kSecond, kIndex});
  save(40);
  expect_files({"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", kIndex});
  write_file(folder_ / "model-00002-of-00007.safetensors.tmp0", "of a killed save");
  save(1000);
  expect_files({"model.safetensors"});
}

TEST_F(Pretrained, FailedSaveLeavesNoMixtureOfOldAndNewShards) {
  save_pretrained(folder_.path(), {{"a", td::ones({4})}, {"b", td::ones({4})}}, {.max_shard_size = 16});
  fs::remove(folder_ / kSecond);
  fs::create_directories(folder_ / kSecond + "/not a file");  // cannot be replaced
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] {
    save_pretrained(folder_.path(), {{"a", td::zeros({4})}, {"b", td::zeros({4})}}, {.max_shard_size = 16});
  })),
            "save_safetensors: cannot replace 'DIR/model-00002-of-00002.safetensors': Is a directory");
  EXPECT_EQ(load_error(),
            "load_pretrained: the folder 'DIR' has neither 'model.safetensors' nor 'model.safetensors.index.json'");
}

TEST_F(Pretrained, NameSelectsTheWeights) {
  const std::string folder = folder_ / "new/folder";
  save_pretrained(folder, tensors_, {.name = "adapter", .max_shard_size = 100, .metadata = {}});
  save_pretrained(folder, {{"x", td::ones({1})}});
  EXPECT_EQ(load_pretrained(folder, {.name = "adapter"}).tensors.size(), 5u);
  EXPECT_TRUE(load_pretrained(folder, {.name = "adapter"}).metadata.empty());
  EXPECT_EQ(names(load_pretrained(folder).tensors), Names{"x"});
}

TEST_F(Pretrained, InvalidArgumentsAreRejected) {
  const std::string folder = folder_ / "new";
  const auto rejected = [&](const std::function<void()>& f) { return error_text<td::ValueError>(f); };
  EXPECT_EQ(rejected([&] { save_pretrained(folder, tensors_, {.name = "a/b"}); }),
            "save_pretrained: name is 'a/b' (expected the beginning of file names: UTF-8, without '/')");
  EXPECT_EQ(rejected([&] { load_pretrained(folder, {.name = ""}); }),
            "load_pretrained: name is '' (expected the beginning of file names: UTF-8, without '/')");
  EXPECT_EQ(rejected([&] { save_pretrained(folder, tensors_, {.max_shard_size = 0}); }),
            "save_pretrained: max_shard_size is 0 (expected at least 1)");
  EXPECT_EQ(rejected([&] {
              save_pretrained(folder, {{"", td::ones({1})}});
            }),
            "save_pretrained: a tensor's name is empty");
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(Pretrained, UnwritableFolderIsAnError) {
  write_file(folder_ / "file", "");
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { save_pretrained(folder_ / "file", tensors_); })),
            "save_pretrained: cannot create the folder 'DIR/file': Not a directory");
}

TEST_F(Pretrained, FolderWithoutWeightsIsAnError) {
  EXPECT_EQ(load_error(),
            "load_pretrained: the folder 'DIR' has neither 'model.safetensors' nor 'model.safetensors.index.json'");
}

TEST_F(Pretrained, ShardsAreFoundThroughSymbolicLinks) {
  // Hugging Face's cache has links to files of other folders.
  const td::testing::TemporaryFolder blobs;
  save_pretrained(blobs.path(), tensors_, {.max_shard_size = 100});
  for (const std::string& name : {kFirst, kSecond, kIndex}) fs::create_symlink(blobs / name, folder_ / name);
  EXPECT_EQ(load_pretrained(folder_.path()).tensors.size(), 5u);
}

TEST_F(Pretrained, FilesOutsideOfTheFolderAreRejected) {
  const td::testing::TemporaryFolder outside;
  save_safetensors(outside / "secret", {{"a", td::ones({1})}});
  const auto rejected = [&](const std::string& file) {
    const std::string error = index_error(R"({"weight_map": {"a": ")" + file + R"("}})");
    return error.substr(error.find(": ") + 2);  // without the byte's number
  };
  const std::string relative = fs::relative(outside / "secret", folder_.path()).string();
  for (const std::string& file : Names{outside / "secret", relative, "../model.safetensors", "./" + kFirst, "a/b",
                                       "/etc/passwd", "", ".", ".."}) {
    EXPECT_EQ(rejected(file), "tensor 'a': '" + file + "' is not the name of a file in the folder");
  }
  EXPECT_EQ(rejected("x\\u0000y"), "tensor 'a': the file name has a NUL");
}

TEST_F(Pretrained, MissingShardIsAnError) {
  write_shards(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00009-of-00002.safetensors"})");
  EXPECT_EQ(
      load_error(),
      "load_pretrained: 'DIR/model.safetensors.index.json' names 'model-00009-of-00002.safetensors', which is not "
      "in the folder");
}

TEST_F(Pretrained, TensorsInUnexpectedFilesAreErrors) {
  write_shards(R"({"a": "model-00002-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})");
  EXPECT_EQ(load_error(),
            "load_pretrained: 'DIR/model.safetensors.index.json' assigns the tensor 'a' to "
            "'model-00002-of-00002.safetensors', which does not have it");
  write_shards(R"({"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"})");
  EXPECT_EQ(load_error(),
            "load_pretrained: 'DIR/model-00001-of-00002.safetensors' has the tensor 'a', which "
            "'DIR/model.safetensors.index.json' assigns to 'model-00002-of-00002.safetensors'");
  write_shards(R"({"b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"})");
  EXPECT_EQ(load_error(),
            "load_pretrained: 'DIR/model-00001-of-00002.safetensors' has the tensor 'a', which "
            "'DIR/model.safetensors.index.json' does not name");
  write_shards(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})");
  save_safetensors(folder_ / kSecond, {{"a", td::ones({3})}, {"b", td::ones({3})}});
  EXPECT_EQ(load_error(),
            "load_pretrained: 'DIR/model-00002-of-00002.safetensors' has the tensor 'a', which "
            "'DIR/model.safetensors.index.json' assigns to 'model-00001-of-00002.safetensors'");
}

TEST_F(Pretrained, DamagedShardErrorNamesTheFile) {
  write_shards(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})");
  fs::resize_file(folder_ / kSecond, 70);
  EXPECT_EQ(
      load_error(),
      "load_safetensors: 'DIR/model-00002-of-00002.safetensors': the tensors end at byte 12 of the data, the file "
      "has 6");
}

TEST_F(Pretrained, SkippedTensorsOfAllShardsAreReported) {
  write_shards(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})");
  std::string bytes = read_file(folder_ / kSecond);
  bytes.replace(bytes.find("F32"), 3, "U32");
  write_file(folder_ / kSecond, bytes);
  const auto file = load_pretrained(folder_.path());
  EXPECT_EQ(names(file.tensors), Names{"a"});
  EXPECT_EQ(file.skipped, (std::vector<std::pair<std::string, std::string>>{{"b", "U32"}}));
}

TEST_F(Pretrained, InvalidIndexIsAnError) {
  EXPECT_EQ(index_error("[]"), "byte 1: expected an object, got an array");
  EXPECT_EQ(index_error("{"), "byte 1: the JSON ends too early");
  EXPECT_EQ(index_error("{}"), "'weight_map' is missing");
  EXPECT_EQ(index_error(R"({"metadata": {"weight_map": {"a": "b"}}})"), "'weight_map' is missing");
  EXPECT_EQ(index_error(R"({"weight_map": []})"), "byte 16: 'weight_map': expected an object, got an array");
  EXPECT_EQ(index_error(R"({"weight_map": {"a": 1}})"),
            "byte 23: tensor 'a': expected a string, got an integer that is not negative");
  EXPECT_EQ(index_error(R"({"weight_map": {"a": {"a": "b"}}})"),
            "byte 22: tensor 'a': expected a string, got an object");
  EXPECT_EQ(index_error(R"({"weight_map": {"a": "b", "a": "b"}})"), "byte 34: tensor 'a' occurs twice");
  EXPECT_EQ(index_error(R"({"weight_map": {}, "weight_map": {}})"), "byte 31: 'weight_map' occurs twice");
}

TEST_F(Pretrained, OtherEntriesOfTheIndexAreIgnored) {
  write_shards(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
                   "more": [1, {"weight_map": null}, [[]]], "metadata2": {"total_parameters": 1e3, "a": {"b": [1]}})");
  EXPECT_EQ(load_pretrained(folder_.path()).tensors.size(), 2u);
  write_file(folder_ / kIndex, "\xef\xbb\xbf" + read_file(folder_ / kIndex));  // a byte order mark
  EXPECT_EQ(load_pretrained(folder_.path()).tensors.size(), 2u);
}

}  // namespace
