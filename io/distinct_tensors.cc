#include <tandem/io/distinct_tensors.h>

#include <algorithm>
#include <set>

#include <tandem/base/error.h>
#include <tandem/io/json.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

/// Whether two tensors are the same elements in the same memory, with the same shape and strides.
bool is_alias(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.dtype() == b.dtype() &&
                          a.device() == b.device() && a.shape() == b.shape() && a.strides() == b.strides());
}

void check_name(const char* op, const std::string& name) {
  TANDEM_CHECK(ValueError, !name.empty(), op, ": a tensor's name is empty");
  TANDEM_CHECK(ValueError, name != "__metadata__", op, ": a tensor cannot be named '__metadata__'");
  TANDEM_CHECK(ValueError, name.find('\0') == std::string::npos, op, ": the name that begins with '", name.c_str(),
               "' contains a NUL");
  TANDEM_CHECK(ValueError, is_valid_utf8(name), op, ": the name '", name, "' is not valid UTF-8");
}

}  // namespace

DistinctTensors distinct_tensors(const char* op, const NamedTensors& tensors) {
  DistinctTensors result;
  std::set<std::string> names;
  std::multimap<const void*, size_t> by_address;  // into result.tensors
  for (const auto& [name, tensor] : tensors) {
    check_name(op, name);
    TANDEM_CHECK(ValueError, names.insert(name).second, op, ": the name '", name, "' occurs twice");
    TANDEM_CHECK(StateError, tensor.defined(), op, ": the tensor '", name, "' is undefined");
    const auto [first, last] = by_address.equal_range(tensor.data_ptr());
    const auto same = std::find_if(first, last, [&, &added = tensor](const auto& candidate) {
      return is_alias(result.tensors[candidate.second].second, added);
    });
    if (same != last) {
      result.aliases[name] = result.tensors[same->second].first;
    } else {
      by_address.emplace(tensor.data_ptr(), result.tensors.size());
      result.tensors.emplace_back(name, tensor);
    }
  }
  return result;
}

}}}  // namespace tandem::v0::io
