#pragma once

namespace tandem {

/// Prints the plans of models as a Markdown table. The test defines it.
void print_plans();

}  // namespace tandem
