#include <tandem/models/lstm.h>

#include <tandem/nn/init.h>
#include <tandem/ops/random.h>

namespace tandem { inline namespace v0 { namespace models {

LstmLanguageModel::LstmLanguageModel(const LstmOptions& options)
    : encoder(add<nn::Embedding>("encoder", options.vocabulary, options.width)),
      rnn(add<nn::LSTM>("rnn", options.width, options.width,
                        {.num_layers = options.layers, .batch_first = true, .dropout = options.dropout})),
      decoder(add<nn::Linear>("decoder", options.width, options.vocabulary)),
      dropout_(options.dropout) {
  nn::init::uniform_(encoder.weight, -0.1, 0.1);
  nn::init::uniform_(decoder.weight, -0.1, 0.1);
  nn::init::zeros_(decoder.bias);
}

LstmResult LstmLanguageModel::operator()(const Tensor& tokens, const Tensor& h_0, const Tensor& c_0) {
  const nn::ModuleScope scope(*this);
  return read(tokens, h_0, c_0);
}

LstmResult LstmLanguageModel::read(const Tensor& tokens, const Tensor& h_0, const Tensor& c_0) const {
  LstmResult result = rnn(dropout(encoder(tokens), dropout_, is_training()), h_0, c_0);
  result.output = decoder(dropout(result.output, dropout_, is_training()));
  return result;
}

}}}  // namespace tandem::v0::models
