#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

TensorOptions options(const Arguments& a) { return a.has("dtype") ? TensorOptions{a.dtype("dtype")} : TensorOptions{}; }

}  // namespace

TANDEM_FIXTURES(factories) {
  fixtures.op("zeros", [](const Arguments& a) { return zeros(a.shape("size"), options(a)); });
  fixtures.op("ones", [](const Arguments& a) { return ones(a.shape("size"), options(a)); });
  fixtures.op("full", [](const Arguments& a) { return full(a.shape("size"), a.number("fill_value"), options(a)); });
  fixtures.unary("zeros_like", zeros_like);
  fixtures.unary("ones_like", ones_like);
  fixtures.op("full_like", [](const Arguments& a) { return full_like(a.tensor("input"), a.number("fill_value")); });
  fixtures.op("scalar_tensor", [](const Arguments& a) { return scalar_tensor(a.number("value"), options(a)); });
  fixtures.op("arange", [](const Arguments& a) {
    const Scalar start = a.has("end") ? a.number("start") : Scalar(0);
    const Scalar end = a.number(a.has("end") ? "end" : "start"), step = a.number("step", 1);
    return a.has("dtype") ? arange(start, end, step, options(a)) : arange(start, end, step);
  });
  fixtures.op("linspace", [](const Arguments& a) {
    return linspace(a.number("start"), a.number("end"), a.integer("steps"), options(a));
  });
  fixtures.op("eye",
              [](const Arguments& a) { return eye(a.integer("n"), a.integer("m", a.integer("n")), options(a)); });
}

}  // namespace tandem::testing
