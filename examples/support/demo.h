// What the examples of several devices show, each line of it checked.
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

/// Prints what code gives, and counts what is not as it must be.
class Demo {
 public:
  explicit Demo(std::ostream& out) : out_(out) {}

  void heading(const std::string& text);
  void code(const std::string& text);
  /// Below the code, line by line.
  void text(const std::string& lines);
  /// A statement that must be true.
  void check(const std::string& statement, bool is_true);
  /// As it is.
  void line(const std::string& text);
  /// What the code gave, and where: each tensor must hold `expected`.
  void gives(const std::string& what, const std::vector<tandem::Tensor>& got, const std::vector<double>& expected);
  /// What calling `f`, which is that code, throws: an E, whose whole text is shown.
  template <class E>
  void refuses(const std::string& what, const std::function<void()>& f) {
    code(what);
    try {
      f();
    } catch (const E& error) {
      text(error.what());
      verdict(true);
      return;
    }
    check("it is not refused", false);
  }

  /// "ok" or "WRONG", counted.
  std::string verdict(bool is_right);
  /// The last line.  Returns the exit status: 1 where something was wrong.
  int finish();

 private:
  std::ostream& out_;
  int num_results_ = 0;
  int num_wrong_ = 0;
};

/// main of an example: 1 where something was wrong, or `show` threw, which stderr tells.
int run_demo(const std::function<void(Demo& demo)>& show);

/// Milliseconds that a call of `f` takes, the median of several.
double median_milliseconds(const std::function<void()>& f);

/// Several ways to do one thing, a row each: where the result is, time, how much of the work is done in a second, by how much
/// the memory there grew at most, and whether the result is right.
class WayTable {
 public:
  using Tensors = std::vector<tandem::Tensor>;

  /// `work`: bytes, with `unit` GB/s; or floating-point operations, with GFLOP/s.
  WayTable(Demo& demo, double work, const std::string& unit);
  /// f's results must be on `device`, one of them at least; be as many as `expected`, or all equal to a single one of these; and
  /// elements may differ by `tolerance`.
  void row(const std::string& way, tandem::Device device, const std::function<Tensors()>& f, const Tensors& expected,
           double tolerance = 0);

 private:
  Demo& demo_;
  double work_;
};

}  // namespace examples
