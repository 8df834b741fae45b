// Formats small tensors on one line.
#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace examples {

/// "[1 2]", "[[1 2] [3 4]]"; "-" for an undefined tensor.
std::string brief(const tandem::Tensor& tensor);
/// "[0] [1]"; "-" for an empty list.
std::string brief(const std::vector<tandem::Tensor>& tensors);

}  // namespace examples
