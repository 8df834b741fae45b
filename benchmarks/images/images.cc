// Times reading, decoding and augmenting the images of a folder on one thread: RandomResizedCrop, flip, normalization.
// compare.py compares it with torchvision.
#include <CLI/CLI.hpp>
#include <ctime>
#include <iostream>
#include <string>

#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>

namespace td = tandem;

namespace {

/// Microseconds of processor time per image of f(image index).
template <class F>
double microseconds(int64_t images, F f) {
  const std::clock_t begin = std::clock();
  for (int64_t i = 0; i < images; ++i) f(i);
  return 1e6 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - begin) / static_cast<double>(images);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times decoding and augmenting images on one thread");
  std::string data;
  int64_t size = 224;
  app.add_option("--data", data, "folder with a subfolder of image files per class")->required();
  app.add_option("--size", size, "side of the results")->check(CLI::Range(1, 65535));
  return td::benchmarks::run_program(app, argc, argv, [&] {
    td::set_num_threads(1);
    const td::data::ImageFolder folder(tandem::benchmarks::user_path(data), {.allow_empty = true});
    const auto transform =
        td::data::chain({td::data::random_resized_crop(size), td::data::random_horizontal_flip(), td::data::to_float(),
                         td::data::normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})});
    const double decode = microseconds(folder.size(), [&](int64_t i) { folder.get(i); });
    const double all = microseconds(folder.size(), [&](int64_t i) {
      td::data::ItemRandom random(1, i, 0);
      transform(folder.get(i), random);
    });
    std::cout << tandem::benchmarks::Json({{"decode_us", decode}, {"all_us", all}}).dump() << "\n";
  });
}
