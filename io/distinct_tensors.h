// Lists of named tensors in which a tensor has several names (tied parameters). Private to io/.
#pragma once

#include <map>
#include <string>

#include <tandem/io/safetensors.h>

namespace tandem { inline namespace v0 { namespace io {

/// The tensors of a list, each under the first of its names.
struct DistinctTensors {
  NamedTensors tensors;                        ///< in the order of the list
  std::map<std::string, std::string> aliases;  ///< each other name, and the first name of its tensor
};

/// Two tensors are the same if they have the same memory address, dtype, device, shape and strides. Throws ValueError
/// for a name that is empty, "__metadata__", repeated, not valid UTF-8 or contains a NUL, and StateError for an
/// undefined tensor; the texts begin with `op`.
DistinctTensors distinct_tensors(const char* op, const NamedTensors& tensors);

}}}  // namespace tandem::v0::io
