// Rows of the table of operations.  A family adds its rows in a file of its own, which nothing else names:
//
//     // benchmarks/ops/rows_conv.cc
//     TANDEM_BENCHMARK_ROWS(conv) {
//       rows.add("conv2d", [] { return TensorList{randn({32, 64, 32, 32}), randn({64, 64, 3, 3})}; },
//                [](const TensorList& in) { return conv2d(in[0], in[1], {}, {.padding = 1}); },
//                {.flops = 2.0 * 32 * 32 * 32 * 64 * 64 * 9});
//     }
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/tandem.h>

namespace tandem::benchmarks {

/// What a row is judged by.
struct Cost {
  double flops = 0;           ///< of forward, two for a multiply-add; backward counts twice as many
  double bytes = 0;           ///< that forward reads and writes; 0: its inputs and its output once each
  double backward_bytes = 0;  ///< 0: inputs, their gradients and the output's gradient once each
  bool backward = true;       ///< false: forward alone
};

struct Row {
  std::string op;
  std::function<TensorList()> inputs;
  std::function<Tensor(const TensorList&)> run;
  Cost cost;
};

class Rows {
 public:
  /// A row named `op`, the public function's name; where rows differ in more than shapes, a word follows it:
  /// "conv2d winograd".  `inputs` is called when the row runs.  Floating ones get gradients: capture in `run` what
  /// should have none.
  void add(std::string op, std::function<TensorList()> inputs, std::function<Tensor(const TensorList&)> run,
           Cost cost = {}) {
    all.push_back({std::move(op), std::move(inputs), std::move(run), cost});
  }

  std::vector<Row> all;
};

/// Used by TANDEM_BENCHMARK_ROWS.
bool register_rows(const char* family, void (*add)(Rows&));

}  // namespace tandem::benchmarks

/// Defines a function with a parameter `Rows& rows` that adds the rows of a family.  Once per file rows_<family>.cc.
#define TANDEM_BENCHMARK_ROWS(family)                                      \
  static void tandem_rows_##family(::tandem::benchmarks::Rows& rows);      \
  static const bool tandem_rows_registered_##family =                      \
      ::tandem::benchmarks::register_rows(#family, &tandem_rows_##family); \
  static void tandem_rows_##family([[maybe_unused]] ::tandem::benchmarks::Rows& rows)
