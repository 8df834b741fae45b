#include <tandem/examples/collectives/operation_report.h>
#include <tandem/examples/support/brief.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <tandem/tandem.h>

namespace td = tandem;

namespace examples {

namespace {

constexpr char kCellEnd = '\n';  // separates the cells of a row that is sent to rank 0; cells have no newline

Values values(const std::vector<td::Tensor>& tensors) {
  Values all;
  for (const td::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    for (const double value : tensor.to(td::kFloat64).to_vector<double>()) all.push_back(value);
  }
  return all;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, kCellEnd);) parts.push_back(part);
  return parts;
}

}  // namespace

OperationReport::OperationReport(std::string op, std::string call, std::string meaning)
    : op_(std::move(op)), call_(std::move(call)), meaning_(std::move(meaning)) {}

void OperationReport::show(const std::string& column, const td::Tensor& tensor) { show(column, brief(tensor)); }
void OperationReport::show(const std::string& column, const std::vector<td::Tensor>& tensors) {
  show(column, brief(tensors));
}
void OperationReport::show(const std::string& column, const std::string& text) { cells_.push_back({column, text}); }

void OperationReport::check(const std::string& column, const td::Tensor& got, const Values& expected,
                            double tolerance) {
  add_checked(column, brief(got), values({got}), expected, tolerance);
}

void OperationReport::check(const std::string& column, const std::vector<td::Tensor>& got, const Values& expected) {
  add_checked(column, brief(got), values(got), expected, 0);
}

void OperationReport::check(const std::string& column, const std::string& got, const std::string& expected) {
  const bool ok = got == expected;
  cells_.push_back({column, ok ? got : got + " WRONG, expected " + expected, true, ok, nlohmann::json(got).dump(),
                    nlohmann::json(expected).dump()});
}

void OperationReport::add_checked(const std::string& column, const std::string& text, const Values& got,
                                  const Values& expected, double tolerance) {
  const auto is_near = [&](double a, double b) { return std::abs(a - b) <= tolerance * std::abs(b); };  // false for NaN
  const bool ok = std::equal(got.begin(), got.end(), expected.begin(), expected.end(), is_near);
  const std::string expected_json = nlohmann::json(expected).dump();
  cells_.push_back({column, ok ? text : text + " WRONG, expected " + expected_json, true, ok,
                    nlohmann::json(got).dump(), expected_json});
}

int OperationReport::wrong() const {
  return static_cast<int>(std::count_if(cells_.begin(), cells_.end(), [](const Cell& cell) { return !cell.ok; }));
}

void throw_if_wrong(int wrong) {
  if (wrong > 0) throw std::runtime_error(tandem::str(wrong, wrong == 1 ? " wrong result" : " wrong results"));
}

std::vector<std::string> OperationReport::columns() const {
  std::vector<std::string> names;
  for (const Cell& cell : cells_) names.push_back(cell.column);
  return names;
}

std::vector<std::string> OperationReport::row() const {
  std::vector<std::string> texts;
  for (const Cell& cell : cells_) texts.push_back(cell.text);
  return texts;
}

std::string OperationReport::json_lines(int rank) const {
  std::ostringstream out;
  for (const Cell& cell : cells_) {
    if (!cell.checked) continue;
    const std::string op = cell.column == "after" ? op_ : op_ + " " + cell.column;
    out << "{\"rank\": " << rank << ", \"op\": " << nlohmann::json(op).dump() << ", \"ok\": " << std::boolalpha
        << cell.ok << ", \"got\": " << cell.got << ", \"expected\": " << cell.expected << "}\n";
  }
  return out.str();
}

void print_json(const OperationReport& report, const std::shared_ptr<td::distributed::ProcessGroup>& group) {
  const std::vector<std::string> texts = td::distributed::all_gather_object(report.json_lines(group->rank()), group);
  if (group->rank() != 0) return;
  for (const std::string& text : texts) std::cout << text;
  std::cout << std::flush;
}

void print_table(const OperationReport& report, const std::shared_ptr<td::distributed::ProcessGroup>& group) {
  std::string mine;
  for (const std::string& cell : report.row()) mine += cell + kCellEnd;
  const std::vector<std::string> texts = td::distributed::all_gather_object(mine, group);
  if (group->rank() != 0) return;

  std::vector<std::vector<std::string>> rows = {report.columns()};
  for (const std::string& text : texts) rows.push_back(split(text));
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::ostringstream out;
  out << report.call() << "\n    " << report.meaning() << "\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line = r == 0 ? "          " : "    " + td::str("rank ", r - 1);
    line.resize(12, ' ');
    for (size_t c = 0; c < rows[r].size(); ++c)
      line += rows[r][c] + std::string(widths[c] - rows[r][c].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
  std::cout << out.str() << std::endl;
}

}  // namespace examples
