#include <tandem/data/image.h>
#include <tandem/examples/support/samples.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

namespace examples {

namespace td = tandem;
namespace fs = std::filesystem;

void write_samples(const std::string& out, int64_t step, const td::Tensor& images) {
  char file[40];
  std::snprintf(file, sizeof file, "step-%08lld.png", static_cast<long long>(step));
  td::Tensor grid = td::data::make_grid(images.to(td::kFloat32).cpu(), {.normalize = true, .value_range = {{-1, 1}}});
  if (images.size(1) == 1) grid = grid.narrow(0, 0, 1).contiguous();  // gray: its three channels are equal
  const fs::path folder = (fs::path(out) / kSamples).lexically_normal();
  std::error_code ignored;  // write_png reports that the folder does not exist
  fs::create_directories(folder, ignored);
  try {
    td::data::write_png((folder / file).string(), grid);
  } catch (const td::IoError& error) {
    td::log(td::LogLevel::kWarning, error.what(), "; training continues");
  }
}

}  // namespace examples
