// A text to learn where none is named.
#pragma once

#include <string_view>

namespace examples {

/// tandem's README and the pages of its docs/, one after the other.
std::string_view documentation();

}  // namespace examples
