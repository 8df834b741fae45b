// Times the dispatch overhead of operations on 8x8 float tensors, one thread.
//
//     ./bazelw run //benchmarks:dispatch
#include <CLI/CLI.hpp>
#include <string>

#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>

namespace td = tandem;

int main(int argc, char** argv) {
  CLI::App app("Times the dispatch overhead of operations on 8x8 float tensors");
  std::string json;
  int steps = 5;
  app.add_option("--steps", steps, "rounds; the minimum is reported")->check(CLI::Range(1, 1000000));
  app.add_option("--json", json, "also append the line to this file");
  return td::benchmarks::run_program(app, argc, argv, [&] {
    td::set_num_threads(1);
    const td::Tensor x = td::randn({8, 8});
    td::Tensor w = td::randn({8, 8}).requires_grad_();
    const double add_us = tandem::benchmarks::microseconds_per_call([&] { td::add(x, x); }, 100000, steps);
    const double add_grad_us = tandem::benchmarks::microseconds_per_call([&] { td::add(w, x); }, 100000, steps);
    const double backward_us = tandem::benchmarks::microseconds_per_call(
        [&] {
          td::matmul(w, x).relu().sum().backward();
          w.zero_grad();
        },
        20000, steps);
    tandem::benchmarks::Report(json).line(
        {{"add_us", add_us}, {"add_grad_us", add_grad_us}, {"matmul_relu_sum_backward_us", backward_us}});
  });
}
