// A language model of recurrent layers, W. Zaremba et al., "Recurrent neural network regularization", 2014.
#pragma once

#include <tandem/tandem.h>

namespace models {

/// Sizes of LstmLanguageModel.
struct LstmOptions {
  int64_t vocabulary = 65;
  int64_t width = 512;  ///< of embeddings and hidden states
  int64_t layers = 2;
  double dropout = 0;  ///< between the layers
};

/// tokens [N, T] -> logits [N, T, vocabulary] of the tokens after them: an embedding, LSTM layers that begin with zero
/// states, and a linear layer. Keys as in PyTorch's word_language_model: encoder, rnn, decoder.
struct LstmLanguageModel : tandem::nn::Layer {
  explicit LstmLanguageModel(const LstmOptions& options = {})
      : encoder(add<tandem::nn::Embedding>("encoder", options.vocabulary, options.width)),
        rnn(add<tandem::nn::LSTM>(
            "rnn", options.width, options.width,
            tandem::nn::LSTMOptions{.num_layers = options.layers, .batch_first = true, .dropout = options.dropout})),
        decoder(add<tandem::nn::Linear>("decoder", options.width, options.vocabulary)) {}

  tandem::Tensor forward(const tandem::Tensor& tokens) override { return decoder(rnn(encoder(tokens)).output); }

  tandem::nn::Embedding& encoder;
  tandem::nn::LSTM& rnn;
  tandem::nn::Linear& decoder;
};

}  // namespace models
