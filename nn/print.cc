#include <algorithm>
#include <map>
#include <ostream>

#include <tandem/base/format.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct Row {
  std::string module;
  int64_t values;  ///< number of elements in the parameters of the module and of the modules below
  std::string tensors;
};

struct Sum {
  int64_t values = 0;
  int64_t trainable = 0;
  int64_t num_bytes = 0;
};

Sum sum_of(const NamedTensors& tensors) {
  Sum sum;
  for (const auto& [path, tensor] : tensors) {
    sum.values += tensor.numel();
    if (tensor.requires_grad()) sum.trainable += tensor.numel();
    sum.num_bytes += tensor.num_bytes();
  }
  return sum;
}

/// Creates the rows of a tree of modules.
class Tree {
 public:
  explicit Tree(const Module& root) {
    for (const auto& [path, tensor] : root.named_parameters()) first_path_[&tensor.impl()] = path;
    add(root, "", "", 0);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  void add(const Module& module, const std::string& name, const std::string& prefix, size_t depth) {
    const std::string settings = module.extra_repr();
    std::string text = std::string(2 * depth, ' ') + (name.empty() ? "" : name + ": ") + module.type_name();
    if (!settings.empty()) text += "(" + settings + ")";
    std::string tensors;
    for (const auto& [own, parameter] : module.named_parameters(false)) {
      tensors += (tensors.empty() ? "" : ", ") + describe(own, parameter);
      if (const std::string& first = first_path_[&parameter.impl()]; first != prefix + own) tensors += " = " + first;
      if (!parameter.requires_grad()) tensors += " (frozen)";
    }
    std::string buffers;
    for (const auto& [own, buffer] : module.named_buffers(false))
      buffers += (buffers.empty() ? "" : ", ") + describe(own, buffer);
    if (!buffers.empty()) tensors += (tensors.empty() ? "buffers " : "; buffers ") + buffers;
    rows_.push_back({std::move(text), sum_of(module.named_parameters()).values, std::move(tensors)});
    for (const auto& [child_name, child] : module.named_children())
      add(*child, child_name, prefix + child_name + ".", depth + 1);
  }

  static std::string describe(const std::string& name, const Tensor& tensor) {
    std::string text = str(name, " ", tensor.shape());
    if (tensor.dtype() != kFloat32) text += str(" ", tensor.dtype());
    return text;
  }

  std::map<const TensorImpl*, std::string> first_path_;
  std::vector<Row> rows_;
};

}  // namespace

std::string to_string(const Module& module) {
  const Tree tree(module);
  size_t module_width = 0;
  size_t count_width = 0;
  for (const Row& row : tree.rows()) {
    module_width = std::max(module_width, row.module.size());
    count_width = std::max(count_width, std::to_string(row.values).size());
  }
  std::string text;
  for (const Row& row : tree.rows()) {
    std::string line = row.module;
    line.resize(module_width, ' ');
    const std::string count = row.values == 0 ? "" : std::to_string(row.values);
    line += "  " + std::string(count_width - count.size(), ' ') + count + "  " + row.tensors;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const NamedTensors parameters = module.named_parameters();
  const NamedTensors buffers = module.named_buffers();
  const Sum of_parameters = sum_of(parameters);
  const Sum of_buffers = sum_of(buffers);
  return text + str("parameters: ", of_parameters.values, " values in ", parameters.size(), " tensors, ",
                    of_parameters.trainable, " trainable, ", format_bytes(of_parameters.num_bytes),
                    "\nbuffers: ", of_buffers.values, " values in ", buffers.size(), " tensors, ",
                    format_bytes(of_buffers.num_bytes));
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << to_string(module); }

std::string to_string(const LoadReport& report) {
  std::string text = format_count(static_cast<int64_t>(report.loaded_keys.size()), "tensor") + " loaded";
  if (!report.converted_keys.empty()) text += str(", ", report.converted_keys.size(), " of them converted");
  for (const std::string& key : report.missing_keys) text += "\n  missing     " + key;
  for (const std::string& key : report.unexpected_keys) text += "\n  unexpected  " + key;
  return text;
}

std::ostream& operator<<(std::ostream& out, const LoadReport& report) { return out << to_string(report); }

}}}  // namespace tandem::v0::nn
