#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

/// A number, or a list of one.
int64_t length(const Arguments& a, const char* name, int64_t otherwise) {
  return a.has(name) ? a.shape(name)[0] : otherwise;
}

/// A size, "valid" or "same".
ConvPadding padding_of(const Arguments& a) {
  if (!a.is_text("padding")) return a.size2d("padding", 0);
  return a.text("padding", "") == "same" ? ConvPadding(kSame) : ConvPadding(0);
}

}  // namespace

TANDEM_FIXTURES(conv) {
  fixtures.op("nn.functional.conv2d", 256, [](const Arguments& a) {
    return conv2d(a.tensor("input"), a.tensor("weight"), a.tensor("bias"),
                  {.stride = a.size2d("stride", 1),
                   .padding = padding_of(a),
                   .dilation = a.size2d("dilation", 1),
                   .groups = a.integer("groups", 1)});
  });
  fixtures.op("nn.functional.conv1d", 256, [](const Arguments& a) {
    return conv1d(a.tensor("input"), a.tensor("weight"), a.tensor("bias"),
                  {.stride = length(a, "stride", 1),
                   .padding = a.is_list("padding") ? length(a, "padding", 0) : padding_of(a),
                   .dilation = length(a, "dilation", 1),
                   .groups = a.integer("groups", 1)});
  });
  fixtures.op("nn.functional.conv_transpose2d", 256, [](const Arguments& a) {
    return conv_transpose2d(a.tensor("input"), a.tensor("weight"), a.tensor("bias"),
                            {.stride = a.size2d("stride", 1),
                             .padding = a.size2d("padding", 0),
                             .output_padding = a.size2d("output_padding", 0),
                             .groups = a.integer("groups", 1),
                             .dilation = a.size2d("dilation", 1)});
  });
  fixtures.op("nn.functional.conv_transpose1d", 256, [](const Arguments& a) {
    return conv_transpose1d(a.tensor("input"), a.tensor("weight"), a.tensor("bias"),
                            {.stride = length(a, "stride", 1),
                             .padding = length(a, "padding", 0),
                             .output_padding = length(a, "output_padding", 0),
                             .groups = a.integer("groups", 1),
                             .dilation = length(a, "dilation", 1)});
  });
}

}  // namespace tandem::testing
