#include <tandem/data/image_folder.h>

#include <tandem/data/data_loader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::data::ImageFolder;
using td::testing::error_text;

namespace {

class ImageFolderTest : public ::testing::Test {
 protected:
  /// Writes a gray image of that size and value.
  void write(const std::string& name, int64_t size = 2, double value = 0) const {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    td::data::write_png(folder_ / name, td::full({1, size, size}, value, {td::kUInt8}));
  }
  std::string error(td::data::ImageFolderOptions options = {}) const {
    return folder_.shortened(error_text<td::IoError>([&] { ImageFolder(folder_.path(), std::move(options)); }));
  }
  const td::testing::TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, FilesAreSortedByClassFolderAndName) {
  for (const char* name :
       {"dog/b.png", "dog/a.PNG", "cat/x/1.jpeg", "cat/9.png", "cat/x/0.Jpg", "cat/z.png", "Ant/1.png"})
    write(name);
  td::testing::write_file(folder_ / "dog/notes.txt", "text");
  td::testing::write_file(folder_ / "loose.png", "outside of a class");
  fs::create_directory_symlink(folder_ / "Ant", folder_ / "dog/link");
  const ImageFolder data(folder_.path());
  EXPECT_EQ(data.classes(), (std::vector<std::string>{"Ant", "cat", "dog"}));
  std::string list;
  for (const auto& [path, label] : data.samples()) list += folder_.shortened(path) + " " + std::to_string(label) + "\n";
  EXPECT_EQ(list,
            "DIR/Ant/1.png 0\nDIR/cat/9.png 1\nDIR/cat/z.png 1\nDIR/cat/x/0.Jpg 1\nDIR/cat/x/1.jpeg 1\n"
            "DIR/dog/a.PNG 2\nDIR/dog/b.png 2\nDIR/dog/link/1.png 2\n");
}

TEST_F(ImageFolderTest, ItemsAreImagesAndLabels) {
  write("a/1.png", 3, 9);
  write("b/1.png", 5, 8);
  const ImageFolder data(folder_.path());
  ASSERT_EQ(data.size(), 2);
  const auto example = data.get(1);
  EXPECT_EQ(example.input.shape(), td::Shape({3, 5, 5}));
  EXPECT_EQ(example.input.dtype(), td::kUInt8);
  EXPECT_EQ(example.input.to_vector<int>()[74], 8);
  EXPECT_EQ(example.target.item<int64_t>(), 1);
  EXPECT_EQ(ImageFolder(folder_.path(), {.mode = td::data::ImageReadMode::kGray}).get(0).input.size(0), 1);
  EXPECT_ERROR(td::IndexError, data.get(2), "ImageFolder: index is 2, expected 0 <= index < 2");
}

TEST_F(ImageFolderTest, LoaderCropsImagesToOneSize) {
  for (int i = 0; i < 6; ++i) write((i < 4 ? "a/" : "b/") + std::to_string(i) + ".png", 3 + i, 40 * i);
  const ImageFolder data(folder_.path());
  std::vector<std::vector<float>> results;
  for (const int workers : {0, 2}) {
    td::data::SequentialSampler sampler(data.size());
    td::data::DataLoader loader(data, sampler,
                                {.batch_size = 3,
                                 .num_workers = workers,
                                 .transform = td::data::chain({td::data::random_resized_crop(2), td::data::to_float()}),
                                 .batch_transform = td::data::mixup({.num_classes = 2})});
    std::vector<float> values;
    for (const auto& batch : loader) {
      EXPECT_EQ(batch.input.shape(), td::Shape({3, 3, 2, 2}));
      EXPECT_EQ(batch.target.shape(), td::Shape({3, 2}));
      for (const float value : batch.input.to_vector<float>()) values.push_back(value);
    }
    results.push_back(values);
  }
  EXPECT_EQ(results[0].size(), 72u);
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(ImageFolderTest, DamagedFileIsNamed) {
  write("a/1.png");
  td::testing::write_file(folder_ / "a/2.png", "\x89PNG\r\n\x1a\nnonsense");
  const ImageFolder data(folder_.path());
  const std::string text = folder_.shortened(error_text<td::IoError>([&] { data.get(1); }));
  EXPECT_EQ(text.rfind("read_image: 'DIR/a/2.png': cannot decode the PNG data: ", 0), 0u) << text;
}

TEST_F(ImageFolderTest, UnusableFoldersAreRejected) {
  EXPECT_EQ(error(), "ImageFolder: 'DIR' has no subfolders, expected one for each class");
  write("b/1.png");
  fs::create_directories(folder_ / "a");
  fs::create_directories(folder_ / "c");
  EXPECT_EQ(error(), "ImageFolder: 'DIR' has classes without files that end in .jpg .jpeg .png\n  a\n  c");
  EXPECT_EQ(ImageFolder(folder_.path(), {.allow_empty = true}).samples()[0].label, 1);
  EXPECT_EQ(error({.extensions = {".jpg"}}),
            "ImageFolder: 'DIR' has classes without files that end in .jpg\n  a\n  b\n  c");
  EXPECT_EQ(folder_.shortened(error_text<td::IoError>([&] { ImageFolder(folder_ / "absent"); })),
            "ImageFolder: cannot read 'DIR/absent': No such file or directory");
}

TEST_F(ImageFolderTest, LoopsOfLinksAreReadOnce) {
  write("a/1.png");
  fs::create_directory_symlink(folder_ / "a", folder_ / "a/again");
  fs::create_directory_symlink(folder_ / "a", folder_ / "a/once_more");
  const ImageFolder data(folder_.path());
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(folder_.shortened(data.samples()[0].path), "DIR/a/1.png");
}

}  // namespace
