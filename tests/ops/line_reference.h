// References of operations on lines, the elements along one dimension.
#pragma once

#include <tandem/tests/support/op_case.h>

namespace tandem::testing {

using Line = std::vector<double>;

/// f of each line along `dim`; all results have one length. If `removed`, that is 1, and the dimension is removed.
inline Dense map_lines(const Dense& in, int64_t dim, const std::function<Line(const Line&)>& f, bool removed = false) {
  Shape shape = in.shape.empty() ? Shape{1} : in.shape;
  const size_t d = static_cast<size_t>(dim < 0 ? dim + shape.dim() : dim);
  const int64_t size = shape[d];
  int64_t inner = 1;
  for (size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t lines = size == 0 ? 0 : in.numel() / size;
  std::vector<Line> results;
  for (int64_t line = 0; line < lines; ++line) {
    Line values;
    for (int64_t i = 0; i < size; ++i) values.push_back(in[(line / inner * size + i) * inner + line % inner]);
    results.push_back(f(values));
  }
  const int64_t length = results.empty() ? (removed ? 1 : size) : static_cast<int64_t>(results[0].size());
  shape[d] = length;
  Dense out = dense_zeros(shape);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < length; ++i) {
      out[(line / inner * length + i) * inner + line % inner] =
          results[static_cast<size_t>(line)][static_cast<size_t>(i)];
    }
  }
  if (in.shape.empty() || removed) shape.erase(d);
  out.shape = shape;
  return out;
}

}  // namespace tandem::testing
