#pragma once

namespace tandem {

/// Prints the plans of models as a Markdown table. A program with plans_main.cc defines it.
void print_plans();

}  // namespace tandem
