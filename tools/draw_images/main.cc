// Makes a folder of images to train on: FOLDER/train and FOLDER/val with one subfolder per class, as data::ImageFolder
// reads it, or FOLDER/train.safetensors and FOLDER/val.safetensors with the tensors "images" and "labels", for programs
// in other languages. Files of images have different sizes.
//
//     ./bazelw run //tools/draw_images -- FOLDER --train 2000 --val 400 --size 64 --format jpeg
//     ./bazelw run //tools/draw_images -- FOLDER --draw digits --train 20000 --val 2000 --format safetensors
#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/parallel_for.h>
#include <tandem/data/digits.h>
#include <tandem/data/image.h>
#include <tandem/data/item_random.h>
#include <tandem/data/shapes.h>
#include <tandem/io/safetensors.h>

namespace td = tandem;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;  // validation images do not depend on --seed; as in the examples

struct Flags {
  std::string folder;
  std::string draw = "shapes";
  int64_t train = 2000;
  int64_t val = 400;
  int64_t size = 64;
  std::string format = "jpeg";
  uint64_t seed = 1;
};

std::unique_ptr<td::data::Dataset> make_dataset(const Flags& flags, int64_t count, uint64_t seed, int64_t side) {
  if (flags.draw == "digits") return std::make_unique<td::data::DigitsDataset>(count, seed);
  return std::make_unique<td::data::ShapesDataset>(
      count, seed, td::data::ShapesOptions{.side = side, .plain = flags.draw == "plain_shapes"});
}

std::vector<std::string> class_names(const Flags& flags) {
  if (flags.draw != "digits") return td::data::ShapesDataset::class_names();
  return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
}

void save_split(const Flags& flags, const std::string& path, int64_t count, uint64_t seed) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  const td::data::Batch all = make_dataset(flags, count, seed, flags.size)->get_batch(indices);
  td::io::save_safetensors(path, {{"images", all.input}, {"labels", all.target}});
}

void draw_split(const Flags& flags, const std::string& name, int64_t count, uint64_t seed) {
  const fs::path folder = fs::path(flags.folder) / name;
  const std::vector<std::string> classes = class_names(flags);
  for (const std::string& name_of_class : classes) fs::create_directories(folder / name_of_class);
  std::atomic<int64_t> done = 0;
  constexpr uint32_t kSizeStream = 0x73697a65;
  td::parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      td::data::ItemRandom random(seed, i, kSizeStream);
      const int64_t side = flags.size + random.below(flags.size / 2 + 1);
      const td::data::Example example = make_dataset(flags, count, seed, side)->get(i);
      char file[32];
      std::snprintf(file, sizeof file, "%07lld.%s", static_cast<long long>(i), flags.format == "png" ? "png" : "jpg");
      const std::string path = folder / classes[static_cast<size_t>(example.target.item<int64_t>())] / file;
      if (flags.format == "png")
        td::data::write_png(path, example.input);
      else
        td::data::write_jpeg(path, example.input, /*quality=*/90);
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
  CLI::App app("Draws images of ten classes into FOLDER/train and FOLDER/val, to train on.");
  app.add_option("folder", flags.folder, "folder to create")->required();
  app.add_option("--train", flags.train, "training images")->check(CLI::Range(1, 10000000))->capture_default_str();
  app.add_option("--val", flags.val, "validation images")->check(CLI::Range(1, 10000000))->capture_default_str();
  app.add_option("--draw", flags.draw,
                 "shapes: with a second figure, a color gradient and noise; plain_shapes: without them; digits: "
                 "handwritten digits of 28x28 pixels")
      ->check(CLI::IsMember({"shapes", "plain_shapes", "digits"}))
      ->capture_default_str();
  app.add_option(
         "--size", flags.size,
         "least side of shapes in pixels; sides are up to 1.5 times as long, but all equal in safetensors files")
      ->check(CLI::Range(8, 2048))
      ->capture_default_str();
  app.add_option("--format", flags.format,
                 "of the image files; safetensors: all images and labels of train and val in one file each")
      ->check(CLI::IsMember({"jpeg", "png", "safetensors"}))
      ->capture_default_str();
  app.add_option("--seed", flags.seed,
                 "seed of the training images, equal to the --seed of an example that draws the same images; the "
                 "validation images are always the same")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    // The folder in which the user typed the command, under `bazelw run`.
    if (const char* current = std::getenv("BUILD_WORKING_DIRECTORY")) fs::current_path(current);
    const bool in_one_file = flags.format == "safetensors";
    const std::string ending = in_one_file ? ".safetensors" : "";
    for (const char* name : {"train", "val"}) {
      const std::string path = fs::path(flags.folder) / (name + ending);
      TANDEM_CHECK(IoError, !fs::exists(path), "draw_images: '", path, "' exists; remove it or choose another folder");
    }
    fs::create_directories(flags.folder);
    for (const auto& [name, count, seed] :
         {std::tuple("train", flags.train, flags.seed), std::tuple("val", flags.val, kTestSeed)}) {
      if (in_one_file) {
        save_split(flags, fs::path(flags.folder) / (name + ending), count, seed);
      } else {
        draw_split(flags, name, count, seed);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
