#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// softmax over `dim`, or its logarithm, in float64.
Dense reference(const Dense& x, int64_t dim, bool log) {
  Dense out = x;
  if (x.numel() == 0) return out;
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  const int64_t size = x.shape.empty() ? 1 : x.shape[static_cast<size_t>(dim)];
  for (int64_t start = 0; start < x.numel(); ++start) {
    if (start / inner % size != 0) continue;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < size; ++i) max = std::max(max, x[start + i * inner]);
    for (int64_t i = 0; i < size; ++i) sum += std::exp(x[start + i * inner] - max);
    for (int64_t i = 0; i < size; ++i) {
      const double value = x[start + i * inner] - max - std::log(sum);
      out[start + i * inner] = log ? value : std::exp(value);
    }
  }
  return out;
}

OpCase softmax_case(Shape shape, int64_t dim, bool log) {
  OpCase op;
  op.name = log ? "log_softmax" : "softmax";
  const int64_t wrapped = dim < 0 ? dim + shape.dim() : dim;
  op.terms = static_cast<double>(shape.empty() ? 1 : std::max<int64_t>(1, shape[static_cast<size_t>(wrapped)]));
  op.inputs = {{"input", shape, -4, 4}};
  op.run = [=](const std::vector<Tensor>& in) { return log ? log_softmax(in[0], dim) : softmax(in[0], dim); };
  op.reference = [=](const std::vector<Dense>& in) { return reference(in[0], std::max<int64_t>(0, wrapped), log); };
  return op;
}

}  // namespace

TANDEM_OP_CASES(softmax) {
  for (const bool log : {false, true}) {
    cases.op(log ? "Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {})"
                 : "Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {})",
             CastPolicy::kFloat32,
             {softmax_case({3, 7}, 0, log), softmax_case({3, 7}, 1, log), softmax_case({2, 33}, -1, log),
              softmax_case({7, 3}, 0, log), softmax_case({2, 5, 3}, 1, log), softmax_case({4, 1}, 1, log),
              softmax_case({31}, 0, log)});
    cases.add(softmax_case({3, 5, 70}, 1, log), kValues);
    cases.add(softmax_case({1, 3, 66}, 1, log), kGradients);
    cases.add(softmax_case({300, 130}, 1, log), kThreads);
    cases.add(softmax_case({130, 300}, 0, log), kThreads);
  }
}

}  // namespace tandem::testing
