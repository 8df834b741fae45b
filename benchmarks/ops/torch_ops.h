// Times calls of PyTorch in a Python process.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include <tandem/tensor/tensor.h>

namespace tandem::benchmarks {

class TorchOps {
 public:
  /// Starts torch_ops.py with one thread. Throws StateError if `python` is not an interpreter with PyTorch.
  explicit TorchOps(const std::string& python);
  ~TorchOps();
  TorchOps(const TorchOps&) = delete;
  TorchOps& operator=(const TorchOps&) = delete;

  const std::string& version() const { return version_; }
  /// Copies the inputs, and makes `expression` over them (named a, b, ...) the call to time. Inputs that require
  /// gradients do so in PyTorch. Throws StateError if the call fails.
  void set_call(const std::string& expression, const TensorList& inputs);
  /// Milliseconds of the fastest forward, or forward with backward; calls are repeated for `seconds`.
  double min_ms(bool both, double seconds);

 private:
  nlohmann::json read_answer();

  pid_t pid_ = -1;
  FILE* requests_ = nullptr;
  FILE* answers_ = nullptr;
  std::string version_;
};

}  // namespace tandem::benchmarks
