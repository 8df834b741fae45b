#include <tandem/ops/pool.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

/// PyTorch's stride, for which an empty list is the kernel's size.
std::optional<Size2d> stride_of(const Arguments& a) {
  if (a.shape("stride").empty()) return {};
  return a.size2d("stride");
}

}  // namespace

TANDEM_FIXTURES(pool) {
  fixtures.op("nn.functional.max_pool2d", [](const Arguments& a) {
    return max_pool2d(a.tensor("input"), a.size2d("kernel_size"),
                      {.stride = stride_of(a),
                       .padding = a.size2d("padding", 0),
                       .dilation = a.size2d("dilation", 1),
                       .ceil_mode = a.flag("ceil_mode")});
  });
  fixtures.op("nn.functional.avg_pool2d", [](const Arguments& a) {
    return avg_pool2d(a.tensor("input"), a.size2d("kernel_size"),
                      {.stride = stride_of(a),
                       .padding = a.size2d("padding", 0),
                       .ceil_mode = a.flag("ceil_mode"),
                       .count_include_pad = a.flag("count_include_pad", true)});
  });
  fixtures.op("nn.functional.adaptive_avg_pool2d",
              [](const Arguments& a) { return adaptive_avg_pool2d(a.tensor("input"), a.size2d("output_size")); });
}

}  // namespace tandem::testing
