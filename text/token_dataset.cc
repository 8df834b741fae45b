#include <tandem/text/token_dataset.h>

#include <algorithm>
#include <utility>

#include <tandem/base/math.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace text {

TokenDataset::TokenDataset(int64_t num_tokens, Read read, TokenOptions options)
    : num_tokens_(num_tokens), read_(std::move(read)), options_(options) {
  TANDEM_CHECK(ValueError, options.context >= 1, "TokenDataset: context is ", options.context, ", expected at least 1");
  TANDEM_CHECK(ValueError, options.stride >= 1, "TokenDataset: stride is ", options.stride, ", expected at least 1");
  TANDEM_CHECK(ValueError, num_tokens > options.context, "TokenDataset: ", num_tokens,
               " tokens, expected at least context + 1 = ", saturating_add(options.context, 1));
}

TokenDataset::TokenDataset(std::vector<uint16_t> tokens, TokenOptions options)
    // Braces evaluate in order: the size first.
    : TokenDataset{static_cast<int64_t>(tokens.size()),
                   [tokens = std::move(tokens)](int64_t begin, std::span<int64_t> out) {
                     std::copy_n(tokens.begin() + begin, out.size(), out.begin());
                   },
                   options} {}

TokenDataset::TokenDataset(TokenFile file, TokenOptions options)
    : TokenDataset(
          file.size(), [file](int64_t begin, std::span<int64_t> out) { file.read(begin, out); }, options) {}

int64_t TokenDataset::size() const { return (num_tokens_ - options_.context - 1) / options_.stride + 1; }

void TokenDataset::write_item(int64_t index, int64_t* input, int64_t* target) const {
  data::check_item("TokenDataset", index, size());
  const auto context = static_cast<size_t>(options_.context);
  read_(index * options_.stride, {input, context});
  read_(index * options_.stride + 1, {target, context});
}

data::Example TokenDataset::get(int64_t index) const {
  data::Example example = {empty({options_.context}, {kInt64}), empty({options_.context}, {kInt64})};
  write_item(index, example.input.data<int64_t>(), example.target.data<int64_t>());
  return example;
}

data::Batch TokenDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "TokenDataset: empty batch, expected at least one index");
  const Shape shape = {count, options_.context};
  data::Batch batch = {empty(shape, {kInt64}), empty(shape, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    write_item(indices[static_cast<size_t>(row)], batch.input.data<int64_t>() + row * options_.context,
               batch.target.data<int64_t>() + row * options_.context);
  }
  return batch;
}

}}}  // namespace tandem::v0::text
