#include <tandem/examples/support/brief.h>

#include <cstdint>
#include <ostream>
#include <sstream>

#include <tandem/tandem.h>

namespace td = tandem;

namespace examples {

namespace {

void write_brief(std::ostream& out, const td::Tensor& tensor) {
  if (tensor.dim() == 0) {
    out << tensor.to(td::kFloat64).item();
    return;
  }
  out << "[";
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    if (i > 0) out << " ";
    write_brief(out, tensor[i]);
  }
  out << "]";
}

}  // namespace

std::string brief(const td::Tensor& tensor) {
  if (!tensor.defined()) return "-";
  std::ostringstream out;
  out.precision(9);
  write_brief(out, tensor);
  return out.str();
}

std::string brief(const std::vector<td::Tensor>& tensors) {
  if (tensors.empty()) return "-";
  std::string text;
  for (const td::Tensor& tensor : tensors) {
    if (!text.empty()) text += " ";
    text += brief(tensor);
  }
  return text;
}

}  // namespace examples
