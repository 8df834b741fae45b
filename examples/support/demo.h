// Prints and checks the demonstrations of the multi-device examples.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace examples {

/// Prints code with its results, and counts wrong results.
class Demo {
 public:
  explicit Demo(std::ostream& out) : out_(out) {}

  void heading(const std::string& text);
  void code(const std::string& text);
  /// Prints lines below the code, indented.
  void text(const std::string& lines);
  /// Prints a statement and whether it is true.
  void check(const std::string& statement, bool is_true);
  /// Prints a line without indentation.
  void line(const std::string& text);
  /// Prints the code and the tensors that it returned with their devices. All tensors must have the elements
  /// `expected`.
  void returns(const std::string& code_text, const std::vector<tandem::Tensor>& got,
               const std::vector<double>& expected);
  /// Prints the code and the complete text of the error E, which `f` must throw.
  template <class E>
  void throws(const std::string& code_text, const std::function<void()>& f) {
    code(code_text);
    try {
      f();
    } catch (const E& error) {
      text(error.what());
      count_result(true);
      return;
    }
    check("no error was thrown", false);
  }

  /// Counts a result; returns "ok" or "WRONG".
  std::string count_result(bool is_correct);
  /// Prints the last line. Returns the exit status: 1 if a result was wrong.
  int finish();

 private:
  std::ostream& out_;
  int num_results_ = 0;
  int num_wrong_ = 0;
};

/// Runs the demonstrations of an example and returns the exit status: 1 if a result was wrong, or if `show` threw,
/// whose error is printed on stderr.
int run_demo(const std::function<void(Demo& demo)>& show);

/// Median of the milliseconds of several calls of `f`.
double median_milliseconds(const std::function<void()>& f);

/// Compares methods for the same task. Each row has the device of the result, time, rate, peak memory on that device,
/// and whether the result is correct.
class MethodTable {
 public:
  using Tensors = std::vector<tandem::Tensor>;

  /// `work`: bytes, with the unit "GB/s", or floating-point operations, with "GFLOP/s".
  MethodTable(Demo& demo, double work, const std::string& unit);
  /// Times f and checks its results: at least one must be on `device`; they must equal `expected` one by one, or all
  /// equal its only element. `tolerance`: allowed difference of elements.
  void row(const std::string& method, tandem::Device device, const std::function<Tensors()>& f, const Tensors& expected,
           double tolerance = 0);

 private:
  Demo& demo_;
  double work_;
};

}  // namespace examples
