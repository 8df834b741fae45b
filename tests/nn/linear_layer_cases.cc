#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

void add_linear_layers(LayerCases cases) {
  const auto pair = [](auto& layer, const std::vector<Tensor>& in) { return layer(in[0], in[1]); };
  cases.add("linear", [] { return nn::Linear(4, 3); });
  cases.add("linear_no_bias", [] { return nn::Linear(4, 3, {.bias = false}); });
  cases.add("bilinear", pair, [] { return nn::Bilinear(4, 3, 2); });
  cases.add("bilinear_no_bias", pair, [] { return nn::Bilinear(2, 2, 3, {.bias = false}); });
  cases.add("identity", [] { return nn::Identity(); });
  cases.add("flatten", [] { return nn::Flatten(); });
  cases.add("flatten_dims", [] { return nn::Flatten(0, 1); });
  cases.add("unflatten", [] { return nn::Unflatten(1, {2, 2}); });
  cases.add("dropout", [] { return nn::Dropout(0); });
  cases.add("dropout1d", [] { return nn::Dropout1d(0); });
  cases.add("dropout2d", [] { return nn::Dropout2d(0); });
  cases.add("cosine_similarity", pair, [] { return nn::CosineSimilarity(); });
  cases.add("cosine_similarity_dim", pair, [] { return nn::CosineSimilarity(0, 0.5); });
  cases.add("pairwise_distance", pair, [] { return nn::PairwiseDistance(); });
  cases.add("pairwise_distance_p", pair, [] { return nn::PairwiseDistance(3, 0.1, true); });
  cases.add("embedding", [] { return nn::Embedding(5, 3); });
  cases.add("embedding_padding", [] { return nn::Embedding(5, 3, {.padding_idx = 1}); });
  cases.add("embedding_padding_last", [] { return nn::Embedding(5, 3, {.padding_idx = -1}); });
}

}  // namespace tandem::testing
