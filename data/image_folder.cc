#include <tandem/data/image_folder.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

namespace fs = std::filesystem;

bool has_extension(const std::string& name, const std::vector<std::string>& extensions) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const std::string& extension) { return lower.ends_with(extension); });
}

using Files = std::vector<std::pair<std::string, std::string>>;  // (folder, name)

/// Adds the images in `folder` and its subfolders, except folders in `visited`: symbolic links can make the number of
/// paths exponential.
void find_images(const fs::path& folder, const std::vector<std::string>& extensions, std::set<fs::path>& visited,
                 Files& found) {
  if (!visited.insert(fs::canonical(folder)).second) return;
  std::set<fs::path> entries;  // sorted, so that all ranks visit the same links
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) entries.insert(entry.path());
  for (const fs::path& path : entries) {
    const std::string name = path.filename();
    std::error_code ignored;  // of a link that leads nowhere
    if (fs::is_directory(path, ignored))
      find_images(path, extensions, visited, found);
    else if (has_extension(name, extensions))
      found.emplace_back(folder, name);
  }
}

std::vector<std::string> find_classes(const std::string& root) {
  std::vector<std::string> classes;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) classes.push_back(entry.path().filename());
  }
  std::sort(classes.begin(), classes.end());
  return classes;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root, ImageFolderOptions options) : mode_(options.mode) {
  try {
    classes_ = find_classes(root);
    std::string empty_classes;
    for (size_t label = 0; label < classes_.size(); ++label) {
      Files images;
      std::set<fs::path> visited;
      find_images(fs::path(root) / classes_[label], options.extensions, visited, images);
      std::sort(images.begin(), images.end());
      for (const auto& [folder, name] : images) samples_.push_back({folder + "/" + name, static_cast<int64_t>(label)});
      if (images.empty()) empty_classes += "\n  " + classes_[label];
    }
    TANDEM_CHECK(IoError, !classes_.empty(), "ImageFolder: '", root,
                 "' has no subfolders, expected one for each class");
    std::string endings;
    for (const std::string& extension : options.extensions) endings += " " + extension;
    TANDEM_CHECK(IoError, empty_classes.empty() || options.allow_empty, "ImageFolder: '", root,
                 "' has classes without files that end in", endings, empty_classes);
  } catch (const fs::filesystem_error& error) {
    throw IoError(str("ImageFolder: cannot read '", error.path1().string(), "': ", error.code().message()));
  }
}

Example ImageFolder::get(int64_t index) const {
  check_item("ImageFolder", index, size());
  const Sample& sample = samples_[static_cast<size_t>(index)];
  return {read_image(sample.path, mode_), scalar_tensor(sample.label, {kInt64})};
}

}}}  // namespace tandem::v0::data
