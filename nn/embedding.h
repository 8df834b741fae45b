// Embedding tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of Embedding.
struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  ///< a row that is not trained, initially zeros; < 0: counted from the end
};

/// Looks up row i of `weight` for each index i: int64 [...] -> float32 [..., embedding_dim].
///
/// `weight` [num_embeddings, embedding_dim] is float32; its initial values are normal with standard deviation 1, as in
/// PyTorch.
class TANDEM_API Embedding : public Layer {
 public:
  using Options = EmbeddingOptions;  ///< of the constructor
  /// Throws ValueError unless both sizes are at least 1 and padding_idx is in [-num_embeddings, num_embeddings).
  Embedding(int64_t num_embeddings, int64_t embedding_dim, EmbeddingOptions options = {});
  Tensor forward(const Tensor& indices) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [num_embeddings, embedding_dim]

 private:
  EmbeddingOptions options_;
};

}}}  // namespace tandem::v0::nn
