// The registry is complete: it contains each declared operation, with a description and a benchmark.
#include <cctype>

#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/operations_page.h>

namespace tandem::testing { namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The texts after each `marker` up to the end of the declaration, without comments, with single spaces.
std::set<std::string> declarations(std::string text, const std::string& marker) {
  for (size_t at = text.find("//"); at != std::string::npos; at = text.find("//")) {
    text.erase(at, text.find('\n', at) - at);
  }
  std::string scope;
  for (const char* name : {"comm", "linalg"}) {
    if (text.find(str("namespace ", name, " {")) != std::string::npos) scope = str(name, "::");
  }
  std::set<std::string> result;
  for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at + 1)) {
    const size_t begin = at + marker.size();
    size_t end = std::string::npos;
    for (const char* last : {");", ") {", ") const"}) end = std::min(end, text.find(last, begin));
    std::string declaration;
    for (const char c : text.substr(begin, end + 1 - begin)) {
      if (!std::isspace(static_cast<unsigned char>(c))) {
        declaration += c;
      } else if (!declaration.empty() && declaration.back() != ' ' && declaration.back() != '(') {
        declaration += ' ';
      }
    }
    result.insert(declaration.insert(declaration.find_last_of(' ', declaration.find('(')) + 1, scope));
  }
  return result;
}

std::set<std::string> all_declarations() {
  std::set<std::string> declared;
  const std::string header = read("tensor/tensor.h");
  for (const std::string& member : declarations(header.substr(0, header.find("\n private:")), "\n  const Tensor& ")) {
    declared.insert("const Tensor& " + member + " const");
  }
  for (const auto& file : std::filesystem::directory_iterator("ops")) {
    for (const char* marker : {"\nTANDEM_OP ", "\nTANDEM_API inline "})
      declared.merge(declarations(read(file), marker));
  }
  return declared;
}

TEST(OperationRegistry, DeclarationsAreReadFromHeaders) {
  const std::string header =
      "/// TANDEM_OP Tensor comment(Tensor input);\n"
      "TANDEM_API void cast_for(Tensor input);\n"
      "TANDEM_OP Tensor wave(const Tensor& input, Scalar a = f(1, 2), const Options& options = {1, 2});\n"
      "TANDEM_OP std::vector<Tensor> waves(\n"
      "    const std::map<Tensor, int>& tensors,  // both\n"
      "    Generator* generator = nullptr);\n"
      "TANDEM_API inline Tensor operator*(const Tensor& a, Scalar) { return wave(a); }\n";
  using Set = std::set<std::string>;
  EXPECT_EQ(declarations(header, "\nTANDEM_OP "),
            (Set{"Tensor wave(const Tensor& input, Scalar a = f(1, 2), const Options& options = {1, 2})",
                 "std::vector<Tensor> waves(const std::map<Tensor, int>& tensors, Generator* generator = nullptr)"}));
  EXPECT_EQ(declarations(header, "\nTANDEM_API inline "), (Set{"Tensor operator*(const Tensor& a, Scalar)"}));
  EXPECT_EQ(declarations("namespace comm {\n\nTANDEM_OP Tensor wave(Tensor input);\n", "\nTANDEM_OP "),
            (Set{"Tensor comm::wave(Tensor input)"}));
}

TEST(OperationRegistry, HasEveryDeclaredOperation) {
  const std::set<std::string> declared = all_declarations();
  EXPECT_GE(declared.size(), 130u);
  std::set<std::string> described;
  for (const Operation& operation : op_cases().operations) {
    EXPECT_TRUE(described.insert(operation.declaration).second) << operation.declaration << " is described twice";
    EXPECT_FALSE(operation.cases.empty() && operation.crossing.empty()) << operation.declaration << " has no case";
  }
  for (const std::string& declaration : declared) {
    EXPECT_TRUE(described.contains(declaration)) << declaration << " is not described in tests/ops/*_cases.cc";
  }
  for (const std::string& declaration : described) {
    EXPECT_TRUE(declared.contains(declaration)) << declaration << " is described, but no header declares it";
  }
}

bool share_memory(const Tensors& inputs, const Tensor& out) {
  return std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& t) { return t.storage() == out.storage(); });
}

/// Whether the result is a view of an operand, so that its time does not depend on the size.
bool is_view(const OpCase& op) {
  const Tensors inputs = make_inputs(op, kFloat32);
  return share_memory(inputs, op.run(inputs));
}

// Each result is assigned to as a temporary, as in `relu(x) = 1`.
TEST(OperationRegistry, AssignmentToAResultCopiesIntoAnOperandOrThrows) {
  // Members without a function are in in_place_test.cc; inverse is linalg::inv.
  std::set<std::string> names = {"operator=", "operator[]", "cpu", "detach", "expand_as", "grad", "inverse", "view_as"};
  for (const Operation& operation : op_cases().operations) {
    SCOPED_TRACE(operation.declaration);
    names.insert(operation.name());
    if (operation.cases.empty()) continue;
    const Tensors inputs = make_inputs(operation.cases[0], kFloat32);
    Results results = operation.cases[0].run(inputs);
    for (Tensor& result : results.tensors) {
      const bool is_view = share_memory(inputs, result);
      const uint32_t version = result.version();
      try {
        std::move(result) = 1;
        EXPECT_TRUE(is_view || results.tensors.size() > 1);  // where(condition) returns views of one new tensor
        EXPECT_EQ(result.version(), version + 1);
      } catch (const StateError& error) {
        EXPECT_NE(std::string(error.what()).find(is_view ? "is expanded" : "would be lost"), std::string::npos);
      }
    }
  }
  for (const std::string& member : declarations(read("tensor/tensor.h"), "\n  Tensor ")) {
    const size_t end = member.find_first_of("(;");
    EXPECT_TRUE(member[end] == ';' || names.contains(member.substr(0, end))) << member;  // a field ends with ;
  }
}

/// The union of the checks of the operation's cases.
unsigned checks_of(const std::string& name) {
  unsigned checks = 0;
  for (const CheckedCase& checked : op_cases().checked) {
    if (checked.op.name == name) checks |= checked.checks & (checked.op.has_gradient ? kAllChecks : ~kGradients);
  }
  return checks;
}

bool is_measured(const std::string& name) {
  return std::any_of(op_cases().benchmarks.begin(), op_cases().benchmarks.end(),
                     [&](const Benchmark& row) { return row.name.substr(0, row.name.find(' ')) == name; });
}

TEST(OperationRegistry, EveryOperationHasAllChecks) {
  // Random tensors are checked in random_test.cc, synchronized batch norms in norm_test.cc, overwritten tensors in
  // in_place_test.cc.
  const std::set<std::string> elsewhere = {"bernoulli",      "bernoulli_",      "dropout",  "exponential_", "fill_",
                                           "gumbel_softmax", "multinomial",     "normal",   "normal_",      "rand_like",
                                           "randn_like",     "sync_batch_norm", "uniform_", "zero_"};
  for (const Operation& operation : op_cases().operations) {
    if (operation.cases.empty() || elsewhere.contains(operation.cases[0].name)) continue;
    const OpCase& op = operation.cases[0];
    const unsigned wanted = op.has_gradient ? kAllChecks : kAllChecks & ~kGradients;  // an overload may have more
    EXPECT_EQ(checks_of(op.name) & wanted, wanted) << operation.declaration;
  }
}

TEST(OperationRegistry, EveryOperationThatComputesHasABenchmark) {
  for (const Operation& operation : op_cases().operations) {
    std::string name = operation.name();
    name = name.substr(name.find_last_of(':') + 1);
    if (name.back() == '_' || name.starts_with("operator")) continue;  // forms of operations that have one
    if (!operation.cases.empty() && is_view(operation.cases[0])) continue;
    EXPECT_TRUE(is_measured(name)) << name << " has no benchmark in tests/ops/*_cases.cc";
  }
}

TEST(OperationRegistry, PageIsCurrent) {
  const std::string page = read("docs/operations.md");
  const size_t begin = page.find("| operations |");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin, page.find("\n\n", begin) + 1 - begin), operations_table())
      << "copy the output of ./bazelw run //tests/ops:operations_page into docs/operations.md";
}

}}  // namespace tandem::testing
