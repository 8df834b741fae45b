#include <tandem/nn/embedding.h>

#include <tandem/nn/init.h>
#include <tandem/ops/embedding.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Shape weight_shape(int64_t num_embeddings, int64_t embedding_dim) {
  TANDEM_CHECK(ValueError, num_embeddings >= 1 && embedding_dim >= 1, "Embedding: num_embeddings is ", num_embeddings,
               " and embedding_dim ", embedding_dim, ", expected at least 1 each");
  return {num_embeddings, embedding_dim};
}

}  // namespace

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim)
    : weight(add_parameter("weight", empty(weight_shape(num_embeddings, embedding_dim)))) {
  init::normal_(weight);
}

Tensor Embedding::forward(const Tensor& indices) { return embedding(indices, weight); }

std::string Embedding::extra_repr() const { return str(weight.size(0), ", ", weight.size(1)); }

}}}  // namespace tandem::v0::nn
