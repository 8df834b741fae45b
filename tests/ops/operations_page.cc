#include <tandem/tests/ops/operations_page.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

constexpr DType kDTypes[] = {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

/// Whether all operands have a fixed dtype, such as labels.
bool has_fixed_dtypes(const OpCase& op) {
  return std::all_of(op.inputs.begin(), op.inputs.end(), [](const Input& input) { return input.dtype.has_value(); });
}

/// Whether some case accepts operands of `dtype`.
bool accepts(const Operation& operation, DType dtype) {
  const NoGradGuard no_grad;
  for (const OpCase& op : operation.cases) {
    if (has_fixed_dtypes(op)) continue;
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
  if (has_fixed_dtypes(operation.cases[0])) return to_string(*operation.cases[0].inputs[0].dtype);
  std::string accepted, refused;
  for (const DType dtype : kDTypes) {
    std::string& list = accepts(operation, dtype) ? accepted : refused;
    list += str(list.empty() ? "" : ", ", dtype);
  }
  if (refused.empty()) return "any";
  if (refused == "bool, uint8, int32, int64") return "floating";
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

}  // namespace

std::string operations_page() {
  std::string page =
      "# Operations\n\n"
      "Every public operation, with the properties that the tests verify. This page is generated:\n"
      "`./bazelw run //tests/ops:operations_page > docs/operations.md`. The contracts are in the headers `ops/*.h`.\n\n"
      "- *dtypes*: of the operands without a fixed dtype; labels and indices are int64, masks bool.\n"
      "- *autocast*: the dtype that [autocast](from_pytorch.md) casts floating operands to. `widest`: the widest of "
      "the\n"
      "  operands. `-`: operands keep their dtypes.\n"
      "- *derivatives*: `all` orders, only the `first`, or none (`-`).\n"
      "- *device*: where the operation runs and its results are.\n\n"
      "| declaration | dtypes | autocast | derivatives | device |\n|---|---|---|---|---|\n";
  for (const Operation& operation : op_cases().operations) {
    page += str("| `", operation.declaration, "` | ", dtypes_of(operation), " | ", autocast_of(operation), " | ",
                derivatives_of(operation), " | ", devices_of(operation), " |\n");
  }
  return page;
}

}  // namespace tandem::testing
