// Windows of token sequences, to train language models.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/text/token_file.h>

namespace tandem { inline namespace v0 { namespace text {

/// Options of TokenDataset and CharTextDataset.
struct TokenOptions {
  int64_t context = 128;  ///< number of tokens of an input
  int64_t stride = 1;     ///< item i begins at token i * stride
};

/// Windows of a token sequence for next-token prediction. `image` of item i, int64 [context], has the tokens from
/// position i * stride on; `label`, int64 [context], has the tokens from position i * stride + 1 on.
class TANDEM_API TokenDataset : public data::Dataset {
 public:
  /// Throws ValueError unless context and stride are at least 1 and there are more than `context` tokens.
  explicit TokenDataset(std::vector<uint16_t> tokens, TokenOptions options = {});
  /// Windows of the tokens of a file. get() reads the tokens of an item, and throws the errors of TokenFile::read.
  explicit TokenDataset(TokenFile file, TokenOptions options = {});

  int64_t size() const override;
  data::Example get(int64_t index) const override;
  data::Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  using Read = std::function<void(int64_t begin, std::span<int64_t> out)>;
  TokenDataset(int64_t num_tokens, Read read, TokenOptions options);
  void write_item(int64_t index, int64_t* input, int64_t* target) const;

  int64_t num_tokens_;
  Read read_;
  TokenOptions options_;
};

}}}  // namespace tandem::v0::text
