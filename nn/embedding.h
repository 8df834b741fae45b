// A table of vectors.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Row i of `weight` for each i of an int64 tensor [...] -> [..., embedding_dim].
///
/// `weight` [num_embeddings, embedding_dim] is float32 and begins normal with deviation 1, as in PyTorch.
class TANDEM_API Embedding : public Layer {
 public:
  /// Throws ValueError unless both sizes are at least 1.
  Embedding(int64_t num_embeddings, int64_t embedding_dim);
  Tensor forward(const Tensor& indices) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [num_embeddings, embedding_dim]
};

}}}  // namespace tandem::v0::nn
