// Calls of PyTorch's operations that tests/fixtures/ops has recorded, and tandem's functions for them. A family's
// functions are in tests/ops/<family>_fixtures.cc; no list names that file:
//
//     TANDEM_FIXTURES(index) {
//       fixtures.op("topk", [](const Arguments& a) {
//         return both(topk(a.tensor("input"), a.integer("k"), a.integer("dim", -1)));
//       });
//     }
//
// The keys and the names of arguments are those of tools/fixtures/operations.py.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing {

/// The arguments of a recorded call, by PyTorch's names. An argument that is None counts as absent. Functions without a
/// default throw for an absent argument.
class Arguments {
 public:
  Arguments(const nlohmann::json& values, std::function<Tensor(const nlohmann::json&)> make_tensor);

  bool has(const char* name) const;
  bool is_tensor(const char* name) const;
  bool is_list(const char* name) const;
  bool is_text(const char* name) const;

  /// Undefined if the argument is absent.
  Tensor tensor(const char* name) const;
  Tensors tensors(const char* name) const;
  int64_t integer(const char* name) const;
  int64_t integer(const char* name, int64_t otherwise) const { return has(name) ? integer(name) : otherwise; }
  double real(const char* name, double otherwise) const;
  bool flag(const char* name, bool otherwise = false) const;
  Scalar number(const char* name) const;
  Scalar number(const char* name, Scalar otherwise) const { return has(name) ? number(name) : otherwise; }
  std::optional<Scalar> optional_number(const char* name) const;
  std::string text(const char* name, const std::string& otherwise) const;
  DType dtype(const char* name) const;
  /// A list of integers, or one.
  Shape shape(const char* name) const;
  /// A list of integers or None, or one integer.
  std::vector<std::optional<int64_t>> optional_integers(const char* name) const;
  /// One index, or a list of them.
  std::vector<TensorIndex> indices(const char* name) const;
  /// Two integers, or one for both.
  Size2d size2d(const char* name) const;
  Size2d size2d(const char* name, Size2d otherwise) const { return has(name) ? size2d(name) : otherwise; }

 private:
  const nlohmann::json& at(const char* name) const;

  const nlohmann::json* values_;
  std::map<std::string, Tensors> tensors_;
};

/// The function of a key.
struct FixtureOp {
  std::function<Results(const Arguments&)> run;
  double tolerance;  ///< c in |actual - expected| <= c eps(dtype) (1 + |expected|); 8 at most for half types
};

/// Results of a function that returns two tensors.
template <class Pair>
Results both(const Pair& pair) {
  const auto& [first, second] = pair;
  return Results({first, second});
}

class Fixtures {
 public:
  void op(std::string key, double tolerance, std::function<Results(const Arguments&)> run);
  void op(std::string key, std::function<Results(const Arguments&)> run) { op(std::move(key), 4, std::move(run)); }
  /// An operation of the argument "input".
  void unary(std::string key, double tolerance, Tensor (*f)(Tensor));
  void unary(std::string key, Tensor (*f)(Tensor)) { unary(std::move(key), 4, f); }
  void unary(std::string key, Tensor (*f)(const Tensor&));
  /// f of two arguments, `a` and `b`, of which the second may be a number.
  template <class F>
  void binary(std::string key, F f, const char* a = "input", const char* b = "other") {
    op(std::move(key), [=](const Arguments& x) -> Results {
      return x.is_tensor(b) ? f(x.tensor(a), x.tensor(b)) : f(x.tensor(a), x.number(b));
    });
  }

  /// f of the tensors "input" and "other".
  template <class F>
  void of_tensors(std::string key, F f) {
    op(std::move(key), [=](const Arguments& x) { return f(x.tensor("input"), x.tensor("other")); });
  }

  std::map<std::string, FixtureOp> ops;
};

/// Of all families. First called after static initialization.
const Fixtures& fixtures();

/// Used by TANDEM_FIXTURES.
bool register_fixtures(void (*add)(Fixtures&));

}  // namespace tandem::testing

/// Defines a function with a parameter `Fixtures& fixtures` that adds the functions of a family.
#define TANDEM_FIXTURES(family)                                        \
  static void tandem_fixtures_##family(::tandem::testing::Fixtures&);  \
  static const bool tandem_fixtures_registered_##family =              \
      ::tandem::testing::register_fixtures(&tandem_fixtures_##family); \
  static void tandem_fixtures_##family(::tandem::testing::Fixtures& fixtures)
