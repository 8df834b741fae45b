// tandem's operations repeat the calls of PyTorch that tools/fixtures/op_fixtures.py has recorded: results and
// gradients are equal within rounding, for inputs of several layouts.
#include <nlohmann/json.hpp>

#include <tandem/io/safetensors.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing { namespace {

using nlohmann::json;

struct File {
  std::map<std::string, Tensor> tensors;
  json calls;
};

const std::string kFolder = "tests/fixtures/ops";

const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    std::vector<File> result;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
      if (entry.path().extension() != ".safetensors") continue;
      io::SafetensorsFile content = io::load_safetensors(entry.path());
      File& file = result.emplace_back();
      for (auto& [name, tensor] : content.tensors) file.tensors.emplace(name, std::move(tensor));
      file.calls = json::parse(content.metadata.at("calls"));
    }
    return result;
  }();
  return all;
}

/// As cotangent() in tools/fixtures/op_fixtures.py.
Tensor cotangent(const Tensor& result) {
  Dense values = dense_zeros(result.shape());
  for (int64_t i = 0; i < values.numel(); ++i) values[i] = static_cast<double>((i * 7 + 3) % 11 - 5) / 4;
  return make_tensor(values, result.dtype(), Layout::kContiguous, result.device());
}

std::string text_of(const json& call) {
  return str(call.at("op").get<std::string>(), " ", call.value("name", ""), " ", call.at("arguments").dump());
}

/// Integers must be equal, floating numbers within tolerance (1 + |expected|), NaN and infinities the same, and with
/// `signs` the signs of zeros.
::testing::AssertionResult matches(const Tensor& actual, const Tensor& expected, double tolerance, bool signs = false) {
  if (!actual.defined()) return ::testing::AssertionFailure() << "undefined, expected " << describe(expected);
  if (actual.dtype() != expected.dtype() || actual.shape() != expected.shape()) {
    return ::testing::AssertionFailure() << describe(actual) << ", expected " << describe(expected);
  }
  const std::vector<double> values = actual.to_vector<double>(), wanted = expected.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double want = wanted[i];
    const bool same = std::isnan(want) ? std::isnan(values[i]) : values[i] == want;
    const bool other_zero = same && signs && want == 0 && std::signbit(values[i]) != std::signbit(want);
    if (other_zero) return ::testing::AssertionFailure() << "element " << i << " is a zero of the other sign";
    if (!same && !(std::isfinite(want) && std::abs(values[i] - want) <= tolerance * (1 + std::abs(want)))) {
      return ::testing::AssertionFailure() << "element " << i << " is " << values[i] << ", expected " << want
                                           << " within " << tolerance * (1 + std::abs(want)) << "\nactual "
                                           << to_string(actual) << "\nexpected " << to_string(expected);
    }
  }
  return ::testing::AssertionSuccess();
}

void check_call(const File& file, const json& call, const FixtureOp& op, Layout layout) {
  const auto recorded = [&](const json& number) { return file.tensors.at(std::to_string(number.get<int>())); };
  std::vector<Tensor> leaves, expected_gradients;
  const Arguments arguments(call.at("arguments"), [&](const json& value) {
    const Tensor tensor = recorded(value.at("t"));
    const Tensor input = layout == Layout::kContiguous
                             ? tensor.to(test_device())
                             : make_tensor(dense(tensor), tensor.dtype(), layout, test_device());
    if (value.contains("g")) {
      const json& gradient = value.at("g");
      leaves.push_back(input.detach().requires_grad_());
      expected_gradients.push_back(gradient.is_null() ? Tensor() : recorded(gradient));
      return leaves.back();
    }
    return input;
  });
  // Half types are computed in float32 and rounded once.
  const auto tolerance_of = [&](DType dtype) {
    return (size_of(dtype) == 2 ? std::min(op.tolerance, 8.0) : op.tolerance) * epsilon(dtype);
  };
  const Tensors results = op.run(arguments).tensors;
  const json& expected = call.at("results");
  const bool signs = !call.at("op").get<std::string>().starts_with("nn.");
  ASSERT_EQ(results.size(), expected.size());
  std::vector<Tensor> roots, cotangents;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor want = recorded(expected[i]);
    EXPECT_TRUE(matches(results[i], want, tolerance_of(want.dtype()), signs)) << "result " << i;
    if (results[i].requires_grad()) {
      roots.push_back(results[i]);
      cotangents.push_back(cotangent(results[i]));
    }
  }
  if (leaves.empty()) return;
  const std::vector<Tensor> gradients =
      roots.empty() ? std::vector<Tensor>(leaves.size()) : grad(roots, leaves, cotangents);
  for (size_t i = 0; i < gradients.size(); ++i) {
    // An undefined gradient is zero.
    const auto or_zero = [&](const Tensor& gradient) { return gradient.defined() ? gradient : zeros_like(leaves[i]); };
    EXPECT_TRUE(matches(or_zero(gradients[i]), or_zero(expected_gradients[i]), tolerance_of(leaves[i].dtype())))
        << "gradient " << i;
  }
}

/// Number of failed expectations of the running test.
int num_failed() { return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); }

class Fixture : public ::testing::TestWithParam<std::string> {};

TEST_P(Fixture, MatchesPyTorch) {
  const FixtureOp& op = fixtures().ops.at(GetParam());
  int num_calls = 0;
  for (const File& file : files()) {
    for (const json& call : file.calls) {
      if (call.at("op") != GetParam()) continue;
      ++num_calls;
      const int before = num_failed();
      for (const Layout layout : {Layout::kContiguous, Layout::kTransposed, Layout::kSliced}) {
        if ((layout != Layout::kContiguous && !call.value("layouts", true)) || num_failed() > before) continue;
        SCOPED_TRACE(str("layout ", static_cast<int>(layout), ": ", text_of(call)));
        try {
          check_call(file, call, op, layout);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      }
    }
  }
  EXPECT_GT(num_calls, 0) << "no recorded call";
}

std::vector<std::string> keys() {
  std::vector<std::string> result;
  for (const auto& [key, op] : fixtures().ops) result.push_back(key);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Fixture, ::testing::ValuesIn(keys()), [](const auto& param) {
  std::string name = param.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(Fixtures, EveryRecordedOperationHasAFunction) {
  std::set<std::string> missing;
  for (const File& file : files()) {
    for (const json& call : file.calls) {
      if (!fixtures().ops.contains(call.at("op"))) missing.insert(call.at("op"));
    }
  }
  EXPECT_TRUE(missing.empty()) << "add to tests/ops/*_fixtures.cc: " << ::testing::PrintToString(missing);
}

/// An operand of a row or column of result_dtypes.json.
json operand(const std::string& kind, const std::string& dtype, std::vector<Tensor>& tensors) {
  if (kind == "number") return dtype == "bool" ? json(true) : dtype == "int64" ? json(2) : json(1.5);
  const Dense ones = kind == "tensor" ? Dense{{2}, {1, 1}} : Dense{{}, {1}};
  tensors.push_back(make_tensor(ones, Arguments(json{{"dtype", {{"dtype", dtype}}}}, {}).dtype("dtype"),
                                Layout::kContiguous, test_device()));
  return {{"t", tensors.size() - 1}};
}

TEST(Fixtures, ResultDTypesMatchPyTorch) {
  const auto table = nlohmann::ordered_json::parse(std::ifstream(kFolder + "/result_dtypes.json"));
  const auto dtype_of = [&](char code) { return table.at("letters").value(std::string(1, code), "an error"); };
  std::vector<std::pair<std::string, std::string>> kinds;
  for (const auto& [kind, codes] : table.at("operands").items()) {
    for (const char code : codes.get<std::string>()) kinds.emplace_back(kind, dtype_of(code));
  }
  int num_pairs = 0;
  const auto compare = [&](const std::string& key, size_t i, size_t k, char expected) {
    ++num_pairs;
    std::vector<Tensor> tensors;
    json arguments;
    arguments["input"] = operand(kinds[i].first, kinds[i].second, tensors);
    arguments["other"] = arguments["exponent"] = operand(kinds[k].first, kinds[k].second, tensors);
    std::string actual = "an error";
    try {
      const Arguments a(arguments, [&](const json& value) { return tensors.at(value.at("t")); });
      actual = to_string(Tensor(fixtures().ops.at(key).run(a)).dtype());
    } catch (const Error&) {
    }
    EXPECT_EQ(actual, dtype_of(expected))
        << key << " of " << ::testing::PrintToString(kinds[i]) << " and " << ::testing::PrintToString(kinds[k]);
  };
  for (const auto& [keys, rows] : table.at("operations").items()) {
    std::istringstream words(keys);
    for (std::string key; words >> key;) {
      for (const auto& [row, first_operands] : rows.items()) {
        std::istringstream numbers(first_operands.get<std::string>());
        for (size_t i; numbers >> i;) {
          for (size_t k = 0; k < kinds.size(); ++k) {
            if (row[k] != '.') compare(key, i, k, row[k]);
          }
        }
      }
    }
  }
  EXPECT_GT(num_pairs, 0);
}

}}  // namespace tandem::testing
