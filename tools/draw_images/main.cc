// Makes a folder of image files to train on: FOLDER/train and FOLDER/val with one subfolder per class, as
// data::ImageFolder reads it. The images are those of data::ShapesDataset, in different sizes.
//
//     ./bazelw run //tools/draw_images -- FOLDER --train 2000 --val 400 --size 64 --format jpeg
#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include <tandem/base/error.h>
#include <tandem/base/parallel_for.h>
#include <tandem/data/image.h>
#include <tandem/data/item_random.h>
#include <tandem/data/shapes.h>

namespace td = tandem;
namespace fs = std::filesystem;

namespace {

struct Flags {
  std::string folder;
  int64_t train = 2000;
  int64_t val = 400;
  int64_t size = 64;
  std::string format = "jpeg";
  int quality = 90;
  uint64_t seed = 0;
};

void draw_split(const Flags& flags, const std::string& name, int64_t count, uint64_t seed) {
  const fs::path folder = fs::path(flags.folder) / name;
  const auto& classes = td::data::ShapesDataset::class_names();
  for (const std::string& name_of_class : classes) fs::create_directories(folder / name_of_class);
  std::atomic<int64_t> done = 0;
  constexpr uint32_t kSizeStream = 0x73697a65;
  td::parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      td::data::ItemRandom random(seed, i, kSizeStream);
      const int64_t side = flags.size + random.below(flags.size / 2 + 1);
      const td::data::Example example = td::data::ShapesDataset(count, seed, side).get(i);
      char file[32];
      std::snprintf(file, sizeof file, "%07lld.%s", static_cast<long long>(i), flags.format == "png" ? "png" : "jpg");
      const std::string path = folder / classes[static_cast<size_t>(example.label.item<int64_t>())] / file;
      if (flags.format == "png")
        td::data::write_png(path, example.image);
      else
        td::data::write_jpeg(path, example.image, flags.quality);
    }
    const int64_t before = done.fetch_add(end - begin);
    const int64_t after = before + end - begin;
    if (before * 10 / count != after * 10 / count)
      std::printf("%s: %lld of %lld images\n", name.c_str(), static_cast<long long>(after),
                  static_cast<long long>(count));
  });
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Draws image files of ten classes into FOLDER/train and FOLDER/val, to train on.");
  app.add_option("folder", flags.folder, "folder to create")->required();
  app.add_option("--train", flags.train, "training images")->check(CLI::Range(1, 10000000))->capture_default_str();
  app.add_option("--val", flags.val, "validation images")->check(CLI::Range(1, 10000000))->capture_default_str();
  app.add_option("--size", flags.size, "least side in pixels; sides are up to 1.5 times as long")
      ->check(CLI::Range(8, 2048))
      ->capture_default_str();
  app.add_option("--format", flags.format, "jpeg or png")->check(CLI::IsMember({"jpeg", "png"}))->capture_default_str();
  app.add_option("--quality", flags.quality, "of JPEG files")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--seed", flags.seed, "images with different seeds are independent")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    // The folder in which the user typed the command, under `bazelw run`.
    if (const char* current = std::getenv("BUILD_WORKING_DIRECTORY")) fs::current_path(current);
    for (const char* name : {"train", "val"}) {
      const fs::path folder = fs::path(flags.folder) / name;
      TANDEM_CHECK(IoError, !fs::exists(folder), "draw_images: '", folder.string(),
                   "' exists; remove it or choose another folder");
    }
    draw_split(flags, "train", flags.train, 2 * flags.seed);
    draw_split(flags, "val", flags.val, 2 * flags.seed + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
