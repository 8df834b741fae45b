#include <tandem/ops/conv.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(conv) {
  fixtures.op(
      "nn.functional.conv2d",
      [](const Arguments& a) {
        return conv2d(a.tensor("input"), a.tensor("weight"), a.tensor("bias"),
                      {.stride = a.size2d("stride", 1),
                       .padding = a.size2d("padding", 0),
                       .dilation = a.size2d("dilation", 1),
                       .groups = a.integer("groups", 1)});
      },
      256);
}

}  // namespace tandem::testing
