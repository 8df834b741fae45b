// One stop of the tour: what a rank brought, what it has afterwards, and whether that is right.
#pragma once

#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace examples {

using Values = std::vector<double>;

/// One operation, seen from this rank: a row of the table that rank 0 prints.
class Stop {
 public:
  /// `op` names it in results; `call` is what one writes; `meaning` is a line about it.
  Stop(std::string op, std::string call, std::string meaning);

  /// A column that is only shown.
  void show(const std::string& column, const tandem::Tensor& tensor);
  void show(const std::string& column, const std::vector<tandem::Tensor>& tensors);
  void show(const std::string& column, const std::string& text);

  /// A column that must hold `expected`: the elements in row-major order, of a list one tensor after the other.  Each may be
  /// off by `tolerance` of it.
  void check(const std::string& column, const tandem::Tensor& got, const Values& expected, double tolerance = 0);
  void check(const std::string& column, const std::vector<tandem::Tensor>& got, const Values& expected);
  void check(const std::string& column, const std::string& got, const std::string& expected);

  /// Number of columns that hold something else than they must.
  int wrong() const;

  const std::string& call() const { return call_; }
  const std::string& meaning() const { return meaning_; }
  std::vector<std::string> columns() const;
  /// The texts below the columns; a wrong one says what was expected.
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
    std::string expected = {};  // likewise
  };

  void add_checked(const std::string& column, const std::string& text, const Values& got, const Values& expected,
                   double tolerance);

  std::string op_;
  std::string call_;
  std::string meaning_;
  std::vector<Cell> cells_;
};

/// Throws runtime_error unless `wrong` columns of the whole tour are none: the program then ends with status 1.
void require_right(int wrong);

/// The stop as a table, a row per rank, on rank 0's standard output.  Collective.
void print_table(const Stop& stop, tandem::distributed::ProcessGroup& group);

/// All ranks' json_lines on rank 0's standard output.  Collective.
void print_json(const Stop& stop, tandem::distributed::ProcessGroup& group);

}  // namespace examples
