// Collects and checks a rank's inputs and outputs of one operation, and prints them for all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace examples {

using Values = std::vector<double>;

/// One operation on this rank: its row of the table that rank 0 prints.
class OperationReport {
 public:
  /// `op`: name in JSON lines. `call`: the code. `meaning`: one line of explanation.
  OperationReport(std::string op, std::string call, std::string meaning);

  /// Adds a column that is only printed.
  void show(const std::string& column, const tandem::Tensor& tensor);
  void show(const std::string& column, const std::vector<tandem::Tensor>& tensors);
  void show(const std::string& column, const std::string& text);

  /// Adds a column whose elements must equal `expected`: in row-major order, for a list one tensor after the other.
  /// `tolerance`: allowed relative difference.
  void check(const std::string& column, const tandem::Tensor& got, const Values& expected, double tolerance = 0);
  void check(const std::string& column, const std::vector<tandem::Tensor>& got, const Values& expected);
  void check(const std::string& column, const std::string& got, const std::string& expected);

  /// Number of columns with wrong values.
  int wrong() const;

  const std::string& call() const { return call_; }
  const std::string& meaning() const { return meaning_; }
  std::vector<std::string> columns() const;
  /// The cells of this rank's row; a wrong cell has the expected value too.
  std::vector<std::string> row() const;
  /// One line of JSON for each checked column: rank, op, ok, got, expected.
  std::string json_lines(int rank) const;

 private:
  struct Cell {
    std::string column;
    std::string text;
    bool checked = false;
    bool ok = true;
    std::string got = {};       // as JSON
    std::string expected = {};  // as JSON
  };

  void add_checked(const std::string& column, const std::string& text, const Values& got, const Values& expected,
                   double tolerance);

  std::string op_;
  std::string call_;
  std::string meaning_;
  std::vector<Cell> cells_;
};

/// Throws runtime_error if `wrong`, the number of wrong columns of all operations, is not 0. The program then exits
/// with status 1.
void throw_if_wrong(int wrong);

/// Prints a table with one row per rank on rank 0's standard output. Collective.
void print_table(const OperationReport& report, const std::shared_ptr<tandem::distributed::ProcessGroup>& group);

/// Prints json_lines() of all ranks on rank 0's standard output. Collective.
void print_json(const OperationReport& report, const std::shared_ptr<tandem::distributed::ProcessGroup>& group);

}  // namespace examples
