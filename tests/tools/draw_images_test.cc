#include <tandem/data/digits.h>
#include <tandem/data/image_folder.h>
#include <tandem/data/shapes.h>
#include <tandem/io/safetensors.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace {

namespace td = tandem;
using td::testing_support::run_program;

constexpr const char* kProgram = "tools/draw_images/draw_images";

TEST(DrawImages, ImageFolderReadsTheImages) {
  const td::testing::TemporaryFolder folder;
  for (const std::string format : {"jpeg", "png"}) {
    const std::string out = folder / format;
    const auto result =
        run_program({kProgram, out, "--train", "40", "--val", "30", "--size", "20", "--format", format, "--seed", "6"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("train: 40 of 40 images\n"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("val: 30 of 30 images\n"), std::string::npos) << result.out;
    const td::data::ImageFolder train(out + "/train", {.allow_empty = true});
    EXPECT_EQ(train.size(), 40);
    EXPECT_EQ(td::data::ImageFolder(out + "/val", {.allow_empty = true}).size(), 30);
    ASSERT_EQ(train.classes().size(), 10u);
    // The item whose number is in the file's name has the label and the pixels.
    const auto& [path, label] = train.samples()[0];
    const int64_t index = std::stoll(std::filesystem::path(path).stem());
    const td::Tensor image = train.get(0).input;
    EXPECT_GE(image.size(1), 20);
    EXPECT_LE(image.size(1), 30);
    const auto drawn = td::data::ShapesDataset(40, 6, {.side = image.size(1)}).get(index);
    EXPECT_EQ(train.classes()[static_cast<size_t>(label)],
              td::data::ShapesDataset::class_names()[static_cast<size_t>(drawn.target.item<int64_t>())]);
    const auto read = image.to_vector<double>();
    const auto expected = drawn.input.to_vector<double>();
    double difference = 0;
    for (size_t i = 0; i < read.size(); ++i)
      difference += std::abs(read[i] / 255 - expected[i]) / static_cast<double>(read.size());
    EXPECT_LT(difference, format == "png" ? 0.002 : 0.08);
  }
}

TEST(DrawImages, SafetensorsFilesHaveTheDataSets) {
  const td::testing::TemporaryFolder folder;
  const auto read = [&](const std::string& what, const std::string& split) {
    std::map<std::string, td::Tensor> tensors;
    for (const auto& [name, tensor] : td::io::load_safetensors(folder / (what + "/" + split + ".safetensors")).tensors)
      tensors[name] = tensor;
    return tensors;
  };
  const auto draw = [&](const std::string& what) {
    const auto result = run_program({kProgram, folder / what, "--draw", what, "--train", "3", "--val", "2", "--size",
                                     "24", "--format", "safetensors", "--seed", "5"});
    EXPECT_EQ(result.status, 0) << result.err;
  };
  const auto expect_equal = [](std::map<std::string, td::Tensor> file, const td::data::Batch& expected) {
    EXPECT_EQ(file.at("images").shape(), expected.input.shape());
    EXPECT_EQ(file.at("images").to_vector<float>(), expected.input.to_vector<float>());
    EXPECT_EQ(file.at("labels").to_vector<int64_t>(), expected.target.to_vector<int64_t>());
  };
  const std::vector<int64_t> three = {0, 1, 2}, two = {0, 1};
  draw("digits");
  expect_equal(read("digits", "train"), td::data::DigitsDataset(3, 5).get_batch(three));
  expect_equal(read("digits", "val"), td::data::DigitsDataset(2, 0x7e57).get_batch(two));
  draw("plain_shapes");
  expect_equal(read("plain_shapes", "train"),
               td::data::ShapesDataset(3, 5, {.side = 24, .plain = true}).get_batch(three));
}

TEST(DrawImages, ExistingFolderIsKept) {
  const td::testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "val");
  const auto result = run_program({kProgram, folder.path(), "--train", "1", "--val", "1", "--size", "8"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(folder.shortened(result.err), "draw_images: 'DIR/val' exists; remove it or choose another folder\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "train"));
}

}  // namespace
