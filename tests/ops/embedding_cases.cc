#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

OpCase embedding_case(Shape indices, int64_t rows, int64_t d) {
  OpCase op;
  op.name = "embedding";
  op.inputs = {{"indices", indices, 0, static_cast<double>(rows), kInt64, false}, {"weight", {rows, d}}};
  op.terms = static_cast<double>(num_elements(indices));  // for a row used by all indices
  op.run = [](const std::vector<Tensor>& in) { return embedding(in[0], in[1]); };
  op.reference = [=](const std::vector<Dense>& in) {
    Shape shape = indices;
    shape.push_back(d);
    Dense out = dense_zeros(shape);
    for (int64_t i = 0; i < in[0].numel(); ++i) {
      for (int64_t c = 0; c < d; ++c) out[i * d + c] = in[1][static_cast<int64_t>(in[0][i]) * d + c];
    }
    return out;
  };
  return op;
}

}  // namespace

TANDEM_OP_CASES(embedding) {
  cases.op("Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {})",
           std::nullopt,
           {embedding_case({2, 3}, 5, 4), embedding_case({}, 5, 4), embedding_case({7}, 3, 5),
            embedding_case({2, 3}, 7, 1), embedding_case({}, 3, 33), embedding_case({3, 1, 2}, 1, 3)});
  cases.add(embedding_case({3, 31}, 65, 130), kValues);
  cases.add(embedding_case({70, 31}, 65, 130), kThreads);
  cases.add(embedding_case({1000}, 3, 31), kThreads);

  cases.benchmark("embedding", {{65, 128}},
                  [indices = randint(0, 65, {16, 128})](const TensorList& in) { return embedding(indices, in[0]); },
                  {.bytes = 2048 * 128 * 4});
  cases.benchmark("embedding of 50000", {{50000, 384}},
                  [indices = randint(0, 50000, {4, 256})](const TensorList& in) { return embedding(indices, in[0]); },
                  {.bytes = 2 * 1024 * 384 * 4});
}

}  // namespace tandem::testing
