#include <tandem/tests/ops/operations_page.h>

#include <tandem/tests/ops/fixtures.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

constexpr DType kDTypes[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

/// Whether all operands have a fixed dtype, such as labels, or integers of which many are equal.
bool has_fixed_dtypes(const OpCase& op) {
  return std::all_of(op.inputs.begin(), op.inputs.end(), [](const Input& input) { return input.dtype.has_value(); });
}

/// Whether some case accepts operands of `dtype`.
bool accepts(const Operation& operation, DType dtype) {
  const NoGradGuard no_grad;
  for (OpCase op : operation.cases) {
    if (has_fixed_dtypes(op)) {
      for (Input& input : op.inputs) input.dtype = dtype;
    }
    try {
      op.run(make_inputs(op, dtype, Layout::kContiguous, Device()));
      return true;
    } catch (const Error&) {
    }
  }
  return false;
}

std::string dtypes_of(const Operation& operation) {
  if (operation.cases.empty()) return "any";
  std::string accepted, refused;
  for (const DType dtype : kDTypes) {
    std::string& list = accepts(operation, dtype) ? accepted : refused;
    list += str(list.empty() ? "" : ", ", dtype);
  }
  if (refused.empty()) return "any";
  if (refused == "bool, uint8, int8, int16, int32, int64") return "floating";
  return refused == "bool" ? "all but bool" : accepted;
}

std::string autocast_of(const Operation& operation) {
  if (!operation.autocast) return "-";
  switch (*operation.autocast) {
    case CastPolicy::kLowPrecision: return "float16, bfloat16";
    case CastPolicy::kFloat32: return "float32";
    case CastPolicy::kWidest: return "widest";
  }
  return "";
}

std::string derivatives_of(const Operation& operation) {
  if (operation.cases.empty()) return operation.crossing[0].inputs.empty() ? "-" : "all";
  const OpCase& op = operation.cases[0];
  return !op.has_gradient ? "-" : op.has_second_gradient ? "all" : "first";
}

std::string devices_of(const Operation& operation) {
  return operation.cases.empty() ? "given by the arguments" : "that of the operands";
}

/// Whether PyTorch's results are recorded for an operation: its name is a key without namespace and variant.
bool has_fixture(const std::string& name) {
  return std::any_of(fixtures().ops.begin(), fixtures().ops.end(), [&](const auto& entry) {
    std::string key = entry.first;
    for (const std::string prefix : {"nn.functional.", "linalg."}) {
      if (key.starts_with(prefix)) key.erase(0, prefix.size());
    }
    return key.substr(0, key.find('.')) == name;
  });
}

bool has_benchmark(const std::string& name) {
  return std::any_of(op_cases().benchmarks.begin(), op_cases().benchmarks.end(),
                     [&](const Benchmark& row) { return row.name.substr(0, row.name.find(' ')) == name; });
}

/// Text of a table's cell: a bar would end the cell.
std::string cell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

}  // namespace

std::string operations_table() {
  std::string table =
      "| operations | dtypes | autocast | derivatives | device | PyTorch | benchmark "
      "|\n|---|---|---|---|---|---|---|\n";
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;  // properties and names
  for (const Operation& operation : op_cases().operations) {
    const std::string properties =
        str(dtypes_of(operation), " | ", autocast_of(operation), " | ", derivatives_of(operation), " | ",
            devices_of(operation), " | ", has_fixture(operation.name()) ? "yes" : "-", " | ",
            has_benchmark(operation.name()) ? "yes" : "-");
    auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& other) { return other.first == properties; });
    if (row == rows.end()) row = rows.insert(row, {properties, {}});
    const std::string name = str("`", cell(operation.name()), "`");
    if (std::find(row->second.begin(), row->second.end(), name) == row->second.end()) row->second.push_back(name);
  }
  for (const auto& [properties, names] : rows) {
    table += "| ";
    for (const std::string& name : names) table += (&name == &names[0] ? "" : ", ") + name;
    table += " | " + properties + " |\n";
  }
  return table;
}

}  // namespace tandem::testing
