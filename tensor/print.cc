// Tensors as text: nested brackets with aligned columns, abbreviated beyond kFullPrint elements.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <tandem/base/format.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

namespace {

constexpr int64_t kFullPrint = 1000;  // elements that are printed without abbreviation
constexpr int64_t kEdge = 3;          // elements kept at each end of an abbreviated dimension

/// Printed indices of a dimension; -1 means "...".
std::vector<int64_t> shown(int64_t size, bool abbreviate) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < size; ++i) {
    if (abbreviate && size > 2 * kEdge && i == kEdge) {
      result.push_back(-1);
      i = size - kEdge;
    }
    result.push_back(i);
  }
  return result;
}

/// Common number format of a floating tensor, so that decimal points are aligned.
enum class Style { kWhole, kFixed, kScientific };

Style style_of(const std::vector<double>& values) {
  double largest = 0;
  double smallest = HUGE_VAL;
  bool whole = true;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    whole &= value == std::trunc(value);
    if (value == 0) continue;
    largest = std::max(largest, std::fabs(value));
    smallest = std::min(smallest, std::fabs(value));
  }
  if (largest >= 1e8 || (!whole && (smallest < 1e-4 || largest / smallest > 1e5))) return Style::kScientific;
  return whole ? Style::kWhole : Style::kFixed;
}

std::string format(double value, Style style) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  switch (style) {
    case Style::kWhole: return format_fixed(value, 0) + ".";
    case Style::kFixed: return format_fixed(value, 4);
    case Style::kScientific: return format_scientific(value, 4);
  }
  return "";
}

/// Prints one tensor, given the texts of its printed elements in order.
class Printer {
 public:
  Printer(const Shape& shape, bool abbreviate, const std::vector<std::string>& texts)
      : shape_(shape), abbreviate_(abbreviate), texts_(texts) {
    for (const std::string& text : texts) width_ = std::max(width_, text.size());
  }

  void print(std::string& out, size_t d) {
    if (d == shape_.size()) {
      const std::string& text = texts_[next_++];
      out.append(width_ - text.size(), ' ').append(text);
      return;
    }
    out += '[';
    bool first = true;
    for (int64_t i : shown(shape_[d], abbreviate_)) {
      if (!first) {
        // Rows of a matrix are on consecutive lines; an empty line separates matrices.
        const size_t below = shape_.size() - 1 - d;
        out += ',';
        out.append(std::min<size_t>(below, 2), '\n').append(below == 0 ? 1 : d + 1, ' ');
      }
      first = false;
      if (i < 0) {
        out += "...";
      } else {
        print(out, d + 1);
      }
    }
    out += ']';
  }

 private:
  const Shape& shape_;
  bool abbreviate_;
  const std::vector<std::string>& texts_;
  size_t width_ = 0;
  size_t next_ = 0;
};

/// Row-major positions of the printed elements.
void collect(const Shape& shape, bool abbreviate, size_t d, int64_t position, std::vector<int64_t>& out) {
  if (d == shape.size()) {
    out.push_back(position);
    return;
  }
  for (int64_t i : shown(shape[d], abbreviate)) {
    if (i >= 0) collect(shape, abbreviate, d + 1, position * shape[d] + i, out);
  }
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const bool abbreviate = tensor.numel() > kFullPrint;
  std::vector<int64_t> positions;
  if (tensor.numel() > 0) collect(tensor.shape(), abbreviate, 0, 0, positions);
  std::vector<std::string> texts;
  if (is_floating_point(tensor.dtype())) {
    const std::vector<double> all = tensor.to_vector<double>();
    std::vector<double> values;
    for (int64_t position : positions) values.push_back(all[static_cast<size_t>(position)]);
    const Style style = style_of(values);
    for (double value : values) texts.push_back(format(value, style));
  } else {
    const std::vector<int64_t> all = tensor.to_vector<int64_t>();
    for (int64_t position : positions) {
      const int64_t value = all[static_cast<size_t>(position)];
      texts.push_back(tensor.dtype() != kBool ? std::to_string(value) : value != 0 ? "true" : "false");
    }
  }
  std::string out;
  if (tensor.numel() == 0) {
    out = "[]";
  } else {
    Printer(tensor.shape(), abbreviate, texts).print(out, 0);
  }
  return out + "\n" + describe(tensor);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

}}  // namespace tandem::v0
