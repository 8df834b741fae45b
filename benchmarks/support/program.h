// The main function of a benchmark.
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>

#include <tandem/base/error.h>

namespace tandem::benchmarks {

/// Parses the command line and calls f(). Returns the exit status: 0; 2 for a wrong command line; `failed` for an
/// Error, whose text is printed.
template <class F>
int run_program(CLI::App& app, int argc, char** argv, F f, int failed = 2) {
  try {
    app.parse(argc, argv);
    f();
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return failed;
  }
}

}  // namespace tandem::benchmarks
