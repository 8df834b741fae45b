// GPT-2's division of a text into words, between which byte pairs are never merged. Private to text/.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem { inline namespace v0 { namespace text {

/// The end of the word that begins at `begin` < text.size(), by GPT-2's regular expression
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// A byte that is not part of well-formed UTF-8 counts as a character that is neither space, letter nor number.
size_t end_of_word(std::string_view text, size_t begin);

}}}  // namespace tandem::v0::text
