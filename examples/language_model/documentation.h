// The training text without --data.
#pragma once

#include <string_view>

namespace examples {

/// tandem's README and the pages of docs/, concatenated.
std::string_view documentation();

}  // namespace examples
