// A dataset of image files in one folder per class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/data/image.h>

namespace tandem { inline namespace v0 { namespace data {

/// Options of ImageFolder.
struct ImageFolderOptions {
  /// File name extensions of images, in lower case. They are compared without regard to case. Other files are ignored.
  std::vector<std::string> extensions = {".jpg", ".jpeg", ".png"};
  ImageReadMode mode = ImageReadMode::kRgb;  ///< channels of the images
  bool allow_empty = false;                  ///< accept classes without images
};

/// PNG and JPEG files in a folder that has a subfolder for each class, as torchvision's ImageFolder:
///
///     root/cat/1.jpg    root/cat/more/2.png    root/dog/1.jpg
///
/// The classes are the names of the subfolders, sorted; the label of an image is the index of its class. Files in
/// subfolders of a class's folder belong to the class. Symbolic links are followed, but a folder is read once per
/// class. Items are sorted by class, folder and name, so all ranks have the same order. Images are uint8 [C, H, W] in
/// their own sizes, labels int64 []. An image is read when it is requested; DataLoaderOptions::transform brings images
/// to one size.
class TANDEM_API ImageFolder : public Dataset {
 public:
  /// A file and its label.
  struct Sample {
    std::string path;  ///< begins with the root
    int64_t label;     ///< index in classes()
  };

  /// Lists the files. Throws IoError if a folder cannot be read, if there are no classes, or if a class has no image
  /// (unless allow_empty).
  explicit ImageFolder(const std::string& root, ImageFolderOptions options = {});

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  /// Reads and decodes an image. Throws as read_image.
  Example get(int64_t index) const override;

  const std::vector<std::string>& classes() const { return classes_; }  ///< names of the classes, sorted
  const std::vector<Sample>& samples() const { return samples_; }       ///< the items

 private:
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  ImageReadMode mode_;
};

}}}  // namespace tandem::v0::data
