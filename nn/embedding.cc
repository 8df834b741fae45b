#include <tandem/nn/embedding.h>

#include <tandem/nn/init.h>
#include <tandem/ops/embedding.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Shape table_shape(int64_t num_embeddings, int64_t embedding_dim) {
  TANDEM_CHECK(ValueError, num_embeddings >= 1 && embedding_dim >= 1, "Embedding: num_embeddings is ", num_embeddings,
               " and embedding_dim ", embedding_dim, ", expected at least 1 each");
  return {num_embeddings, embedding_dim};
}

}  // namespace

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, EmbeddingOptions options)
    : weight(add_parameter("weight", empty(table_shape(num_embeddings, embedding_dim)))), options_(options) {
  const std::optional<int64_t> padding = options.padding_idx;
  TANDEM_CHECK(ValueError, !padding || (*padding >= -num_embeddings && *padding < num_embeddings),
               "Embedding: padding_idx is ", *padding, ", expected ", -num_embeddings, " to ", num_embeddings - 1);
  init::normal_(weight);
  if (padding) primitives::fill(weight.detach().select(0, *padding), 0);
}

Tensor Embedding::forward(const Tensor& indices) { return embedding(indices, weight, options_.padding_idx); }

std::string Embedding::extra_repr() const {
  return str(weight.size(0), ", ", weight.size(1),
             options_.padding_idx ? str(", padding index ", *options_.padding_idx) : "");
}

}}}  // namespace tandem::v0::nn
