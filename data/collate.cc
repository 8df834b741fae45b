#include <tandem/data/collate.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <tandem/data/error_context.h>
#include <tandem/data/stack.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

Batch collate(const char* op, std::span<const Example> examples) {
  TANDEM_CHECK(ValueError, !examples.empty(), op, ": empty batch, expected at least one example");
  Stack stack(op, static_cast<int64_t>(examples.size()));
  for (size_t i = 0; i < examples.size(); ++i) {
    try {
      stack.add(examples[i]);
    } catch (...) {
      rethrow_with_context(str("in example ", i, " of the batch"));
    }
  }
  return stack.batch();
}

/// The tensor of an example; undefined if the example has no tensor with this name.
Tensor tensor_of(const Example& example, const std::string& name) {
  if (name == "input") return example.input;
  if (name == "target") return example.target;
  const auto found = example.tensors.find(name);
  return found == example.tensors.end() ? Tensor() : found->second;
}

Tensor& tensor_of(Example& example, const std::string& name) {
  if (name == "input") return example.input;
  return name == "target" ? example.target : example.tensors[name];
}

/// `tensor` extended to `length` rows; the added rows are filled with `value`.
Tensor padded(const Tensor& tensor, int64_t length, double value) {
  if (tensor.size(0) == length) return tensor;
  Shape shape = tensor.shape();
  shape[0] = length;
  const Tensor result = full(shape, value, {tensor.dtype()});
  primitives::copy(tensor, make_view(result.storage(), result.dtype(), tensor.shape(), result.strides(), 0));
  return result;
}

}  // namespace

Batch default_collate(std::span<const Example> examples) { return collate("default_collate", examples); }

Collate pad_collate(std::map<std::string, double> padding) {
  return [padding = std::move(padding)](std::span<const Example> examples) {
    std::vector<Example> equal(examples.begin(), examples.end());
    for (const auto& [name, value] : padding) {
      TANDEM_CHECK(ValueError, !equal.empty() && tensor_of(examples[0], name).defined(), "pad_collate: no tensor '",
                   name, "' in the first example of the batch");
      const Tensor lengths = empty({static_cast<int64_t>(equal.size())}, {kInt64});
      int64_t longest = 0;
      for (size_t i = 0; i < equal.size(); ++i) {
        const Tensor tensor = tensor_of(examples[i], name);
        if (!tensor.defined()) continue;  // collate() throws
        TANDEM_CHECK(ShapeError, tensor.dim() >= 1, "pad_collate: '", name, "' of example ", i,
                     " is 0-dim, expected at least one dimension");
        lengths.data<int64_t>()[i] = tensor.size(0);
        longest = std::max(longest, tensor.size(0));
      }
      for (size_t i = 0; i < equal.size(); ++i) {
        Tensor& tensor = tensor_of(equal[i], name);
        if (tensor.defined()) tensor = padded(tensor, longest, value);
        const bool is_new =
            equal[i].tensors.emplace(name + "_lengths", row_of(lengths, static_cast<int64_t>(i))).second;
        TANDEM_CHECK(ValueError, is_new, "pad_collate: example ", i, " has a tensor '", name,
                     "_lengths' already; rename it");
      }
    }
    return collate("pad_collate", equal);
  };
}

}}}  // namespace tandem::v0::data
