// The tensors that tools/fixtures/image_fixtures.py has recorded.
#pragma once

#include <map>
#include <string>

#include <tandem/io/safetensors.h>

namespace tandem::testing {

inline std::map<std::string, Tensor> image_fixtures() {
  std::map<std::string, Tensor> result;
  for (auto& [name, tensor] : io::load_safetensors("tests/fixtures/images.safetensors").tensors) result[name] = tensor;
  return result;
}

}  // namespace tandem::testing
