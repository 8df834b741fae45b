// A language model of recurrent layers, W. Zaremba et al., "Recurrent neural network regularization", 2014.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/nn/recurrent.h>

namespace tandem { inline namespace v0 { namespace models {

/// Options of LstmLanguageModel.
struct LstmOptions {
  int64_t vocabulary = 65;  ///< number of tokens
  int64_t width = 512;      ///< of embeddings and hidden states
  int64_t layers = 2;       ///< number of LSTM layers
  double dropout = 0;       ///< probability, after the embedding, between the layers and before the last layer
};

/// tokens int64 [N, T] -> logits [N, T, vocabulary] of the tokens after them: an embedding, LSTM layers, and a linear
/// layer.
///
/// Keys as in PyTorch's example word_language_model: encoder.weight, rnn.weight_ih_l0 .. decoder.bias. Initial values
/// as there: encoder and decoder uniform in [-0.1, 0.1], the decoder's bias zeros, LSTM as in nn::LSTM.
class TANDEM_API LstmLanguageModel : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1 and 0 <= dropout <= 1.
  explicit LstmLanguageModel(const LstmOptions& options = {});
  /// The states begin with zeros.
  Tensor forward(const Tensor& tokens) override { return read(tokens, {}, {}).output; }
  using Layer::operator();
  /// {logits, h_n, c_n}: continues a sequence from the states [layers, N, width] after its earlier tokens; undefined
  /// states are zeros.
  LstmResult operator()(const Tensor& tokens, const Tensor& h_0, const Tensor& c_0);

  nn::Embedding& encoder;  ///< tokens to vectors
  nn::LSTM& rnn;           ///< batch first
  nn::Linear& decoder;     ///< states to logits

 private:
  LstmResult read(const Tensor& tokens, const Tensor& h_0, const Tensor& c_0) const;

  double dropout_;
};

}}}  // namespace tandem::v0::models
