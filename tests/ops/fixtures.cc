#include <tandem/tests/ops/fixtures.h>

#include <nlohmann/json.hpp>

namespace tandem::testing {

namespace {

std::vector<void (*)(Fixtures&)>& families() {
  static std::vector<void (*)(Fixtures&)> list;
  return list;
}

bool is_tensor_value(const nlohmann::json& value) { return value.is_object() && value.contains("t"); }

double real_of(const nlohmann::json& value) {
  return value.is_object() ? std::stod(value.at("float").get<std::string>()) : value.get<double>();
}

}  // namespace

Arguments::Arguments(const nlohmann::json& values, std::function<Tensor(const nlohmann::json&)> make_tensor)
    : values_(&values) {
  for (const auto& [name, value] : values.items()) {
    if (is_tensor_value(value)) tensors_[name] = {make_tensor(value)};
    if (!value.is_array()) continue;
    for (const nlohmann::json& item : value) {
      if (is_tensor_value(item)) tensors_[name].push_back(make_tensor(item));
    }
  }
}

const nlohmann::json& Arguments::at(const char* name) const { return values_->at(name); }

bool Arguments::has(const char* name) const { return values_->contains(name) && !at(name).is_null(); }

bool Arguments::is_tensor(const char* name) const { return has(name) && is_tensor_value(at(name)); }

bool Arguments::is_list(const char* name) const { return has(name) && at(name).is_array(); }
bool Arguments::is_text(const char* name) const { return has(name) && at(name).is_string(); }

Tensor Arguments::tensor(const char* name) const { return has(name) ? tensors_.at(name).at(0) : Tensor(); }

Tensors Arguments::tensors(const char* name) const { return tensors_.at(name); }

int64_t Arguments::integer(const char* name) const { return at(name).get<int64_t>(); }

double Arguments::real(const char* name, double otherwise) const { return has(name) ? real_of(at(name)) : otherwise; }

bool Arguments::flag(const char* name, bool otherwise) const { return has(name) ? at(name).get<bool>() : otherwise; }

Scalar Arguments::number(const char* name) const {
  const nlohmann::json& value = at(name);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return real_of(value);
}

std::optional<Scalar> Arguments::optional_number(const char* name) const {
  if (!has(name)) return {};
  return number(name);
}

std::string Arguments::text(const char* name, const std::string& otherwise) const {
  return has(name) ? at(name).get<std::string>() : otherwise;
}

DType Arguments::dtype(const char* name) const {
  const std::string text = at(name).at("dtype").get<std::string>();
  for (int i = 0;; ++i) {
    if (to_string(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  }
}

Shape Arguments::shape(const char* name) const {
  if (!has(name)) return {};
  if (!at(name).is_array()) return {integer(name)};
  return at(name).get<std::vector<int64_t>>();
}

std::vector<std::optional<int64_t>> Arguments::optional_integers(const char* name) const {
  std::vector<std::optional<int64_t>> result;
  for (const nlohmann::json& value : is_list(name) ? at(name) : nlohmann::json::array({at(name)})) {
    result.push_back(value.is_null() ? std::nullopt : std::optional(value.get<int64_t>()));
  }
  return result;
}

std::vector<TensorIndex> Arguments::indices(const char* name) const {
  std::vector<TensorIndex> result;
  size_t num_tensors = 0;
  for (const nlohmann::json& value : is_list(name) ? at(name) : nlohmann::json::array({at(name)})) {
    if (is_tensor_value(value)) {
      result.emplace_back(tensors_.at(name).at(num_tensors++));
    } else if (value.is_object() && value.contains("slice")) {
      const auto bound = [&](int i) {
        return value.at("slice")[i].is_null() ? std::nullopt : std::optional(value.at("slice")[i].get<int64_t>());
      };
      result.emplace_back(Slice(bound(0), bound(1), bound(2)));
    } else if (value.is_object()) {
      result.emplace_back(Ellipsis);
    } else if (value.is_null()) {
      result.emplace_back(None);
    } else {
      result.emplace_back(value.get<int64_t>());
    }
  }
  return result;
}

Size2d Arguments::size2d(const char* name) const {
  const Shape sizes = shape(name);
  return {sizes.front(), sizes.back()};
}

void Fixtures::op(std::string key, double tolerance, std::function<Results(const Arguments&)> run) {
  ops.emplace(std::move(key), FixtureOp{std::move(run), tolerance});
}

void Fixtures::unary(std::string key, double tolerance, Tensor (*f)(Tensor)) {
  op(std::move(key), tolerance, [f](const Arguments& a) { return f(a.tensor("input")); });
}

void Fixtures::unary(std::string key, Tensor (*f)(const Tensor&)) {
  op(std::move(key), [f](const Arguments& a) { return f(a.tensor("input")); });
}

bool register_fixtures(void (*add)(Fixtures&)) {
  families().push_back(add);
  return true;
}

const Fixtures& fixtures() {
  static const Fixtures all = [] {
    Fixtures result;
    for (const auto add : families()) add(result);
    return result;
  }();
  return all;
}

}  // namespace tandem::testing
