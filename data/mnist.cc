#include <tandem/data/mnist.h>

#include <string>

#include <tandem/base/file.h>
#include <tandem/data/idx.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kMnistSide = 28;
constexpr int64_t kMnistPixels = kMnistSide * kMnistSide;
constexpr int kMnistClasses = 10;

/// Path of the file `name` or `name`.gz in `folder`; "" if neither exists.
std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = folder + "/" + name + ending;
    if (path_exists("MnistDataset", path)) return path;
  }
  return "";
}

struct IdxFiles {
  std::string images;
  std::string labels;
};

IdxFiles find_files(const std::string& folder, const std::string& prefix) {
  return {find_file(folder, prefix + "-images-idx3-ubyte"), find_file(folder, prefix + "-labels-idx1-ubyte")};
}

}  // namespace

MnistDataset::MnistDataset(const std::string& folder, MnistSplit split, MnistOptions options) {
  const IdxFiles train = find_files(folder, "train");
  const IdxFiles test = find_files(folder, "t10k");
  const bool divide_test = train.images.empty() && train.labels.empty();
  const IdxFiles& files = split == MnistSplit::kTest || divide_test ? test : train;
  TANDEM_CHECK(IoError, !files.images.empty() && !files.labels.empty(), "MnistDataset: '", folder,
               "' does not have all files (each may end in .gz)", "\n  train-images-idx3-ubyte  ",
               train.images.empty() ? "missing" : "found", "\n  train-labels-idx1-ubyte  ",
               train.labels.empty() ? "missing" : "found", "\n  t10k-images-idx3-ubyte   ",
               test.images.empty() ? "missing" : "found", "\n  t10k-labels-idx1-ubyte   ",
               test.labels.empty() ? "missing" : "found",
               "\n  a folder with only the t10k files is accepted: they are divided into training and test set");

  images_ = read_idx(files.images);
  labels_ = read_idx(files.labels);
  TANDEM_CHECK(IoError, images_.dim() == 3 && images_.size(1) == kMnistSide && images_.size(2) == kMnistSide,
               "MnistDataset: '", files.images, "' has sizes ", images_.shape(), ", expected [n, 28, 28]");
  const int64_t count = images_.size(0);
  TANDEM_CHECK(IoError, labels_.dim() == 1 && labels_.size(0) == count, "MnistDataset: '", files.labels, "' has sizes ",
               labels_.shape(), ", expected [", count, "] for the images of '", files.images, "'");
  const auto* labels = labels_.data<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    TANDEM_CHECK(IoError, labels[i] < kMnistClasses, "MnistDataset: '", files.labels, "': label ", i, " is ",
                 int{labels[i]}, ", expected 0 to 9");
  }

  const int64_t border = count - count / 5;
  begin_ = divide_test && split == MnistSplit::kTest ? border : 0;
  end_ = divide_test && split == MnistSplit::kTrain ? border : count;

  for (size_t byte = 0; byte < value_of_.size(); ++byte) {
    const double value = static_cast<double>(byte) / 255.0;
    value_of_[byte] = static_cast<float>(options.normalize ? (value - 0.1307) / 0.3081 : value);
  }
}

void MnistDataset::write_item(int64_t index, float* image, int64_t* label) const {
  check_item("MnistDataset", index, size());
  const uint8_t* bytes = images_.data<uint8_t>() + (begin_ + index) * kMnistPixels;
  for (int64_t i = 0; i < kMnistPixels; ++i) image[i] = value_of_[bytes[i]];
  *label = labels_.data<uint8_t>()[begin_ + index];
}

Example MnistDataset::get(int64_t index) const {
  Example example = {empty({1, kMnistSide, kMnistSide}), empty({}, {kInt64})};
  write_item(index, example.input.data<float>(), example.target.data<int64_t>());
  return example;
}

Batch MnistDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "MnistDataset: empty batch, expected at least one index");
  Batch batch = {empty({count, 1, kMnistSide, kMnistSide}), empty({count}, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    write_item(indices[static_cast<size_t>(row)], batch.input.data<float>() + row * kMnistPixels,
               batch.target.data<int64_t>() + row);
  }
  return batch;
}

}}}  // namespace tandem::v0::data
