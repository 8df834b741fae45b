#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

/// PyTorch's stride, for which an empty list is the kernel's size.
std::optional<Size2d> stride_of(const Arguments& a) {
  if (a.shape("stride").empty()) return {};
  return a.size2d("stride");
}
std::optional<int64_t> stride1d_of(const Arguments& a) {
  if (a.shape("stride").empty()) return {};
  return a.shape("stride")[0];
}
/// A number, or a list of one number.
int64_t number_of(const Arguments& a, const char* name, int64_t otherwise) {
  return a.has(name) ? a.shape(name)[0] : otherwise;
}

OutputSize2d output_size_of(const Arguments& a) {
  const auto sizes = a.optional_integers("output_size");
  return {sizes.front(), sizes.back()};
}

/// PyTorch's output_size of max_unpool, which may also have N and C.
Shape spatial_output_size(const Arguments& a, size_t dims) {
  const Shape shape = a.shape("output_size");
  return Shape(shape.end() - static_cast<ptrdiff_t>(std::min(dims, shape.size())), shape.end());
}

Results values_or_both(const Arguments& a, const ValuesIndices& result) {
  return a.flag("return_indices") ? both(result) : Results(result.values);
}

}  // namespace

TANDEM_FIXTURES(pool) {
  fixtures.op("nn.functional.max_pool2d", [](const Arguments& a) {
    const MaxPool2dOptions options = {.stride = stride_of(a),
                                      .padding = a.size2d("padding", 0),
                                      .dilation = a.size2d("dilation", 1),
                                      .ceil_mode = a.flag("ceil_mode")};
    if (!a.flag("return_indices")) return Results(max_pool2d(a.tensor("input"), a.size2d("kernel_size"), options));
    return both(max_pool2d_with_indices(a.tensor("input"), a.size2d("kernel_size"), options));
  });
  fixtures.op("nn.functional.max_pool1d", [](const Arguments& a) {
    const MaxPool1dOptions options = {.stride = stride1d_of(a),
                                      .padding = number_of(a, "padding", 0),
                                      .dilation = number_of(a, "dilation", 1),
                                      .ceil_mode = a.flag("ceil_mode")};
    const int64_t kernel = number_of(a, "kernel_size", 1);
    if (!a.flag("return_indices")) return Results(max_pool1d(a.tensor("input"), kernel, options));
    return both(max_pool1d_with_indices(a.tensor("input"), kernel, options));
  });
  // Sums of up to 36 numbers up to 9.
  fixtures.op("nn.functional.avg_pool2d", 16, [](const Arguments& a) {
    std::optional<int64_t> divisor;
    if (a.has("divisor_override")) divisor = a.integer("divisor_override");
    return avg_pool2d(a.tensor("input"), a.size2d("kernel_size"),
                      {.stride = stride_of(a),
                       .padding = a.size2d("padding", 0),
                       .ceil_mode = a.flag("ceil_mode"),
                       .count_include_pad = a.flag("count_include_pad", true),
                       .divisor_override = divisor});
  });
  fixtures.op("nn.functional.avg_pool1d", [](const Arguments& a) {
    return avg_pool1d(a.tensor("input"), number_of(a, "kernel_size", 1),
                      {.stride = stride1d_of(a),
                       .padding = number_of(a, "padding", 0),
                       .ceil_mode = a.flag("ceil_mode"),
                       .count_include_pad = a.flag("count_include_pad", true)});
  });
  fixtures.op("nn.functional.adaptive_avg_pool2d",
              [](const Arguments& a) { return adaptive_avg_pool2d(a.tensor("input"), output_size_of(a)); });
  fixtures.op("nn.functional.adaptive_avg_pool1d", [](const Arguments& a) {
    return adaptive_avg_pool1d(a.tensor("input"), number_of(a, "output_size", 1));
  });
  fixtures.op("nn.functional.adaptive_max_pool2d", [](const Arguments& a) {
    return values_or_both(a, adaptive_max_pool2d_with_indices(a.tensor("input"), output_size_of(a)));
  });
  fixtures.op("nn.functional.adaptive_max_pool1d", [](const Arguments& a) {
    return values_or_both(a, adaptive_max_pool1d_with_indices(a.tensor("input"), number_of(a, "output_size", 1)));
  });
  for (const char* key : {"nn.functional.max_unpool2d", "nn.functional.max_unpool2d.grad"}) {
    fixtures.op(key, [](const Arguments& a) {
      MaxUnpool2dOptions options = {.stride = stride_of(a), .padding = a.size2d("padding", 0)};
      const Shape size = spatial_output_size(a, 2);
      if (!size.empty()) options.output_size = Size2d(size[0], size[1]);
      return max_unpool2d(a.tensor("input"), a.tensor("indices"), a.size2d("kernel_size"), options);
    });
  }
  for (const char* key : {"nn.functional.max_unpool1d", "nn.functional.max_unpool1d.grad"}) {
    fixtures.op(key, [](const Arguments& a) {
      MaxUnpool1dOptions options = {.stride = stride1d_of(a), .padding = number_of(a, "padding", 0)};
      const Shape size = spatial_output_size(a, 1);
      if (!size.empty()) options.output_size = size[0];
      return max_unpool1d(a.tensor("input"), a.tensor("indices"), number_of(a, "kernel_size", 1), options);
    });
  }
}

}  // namespace tandem::testing
