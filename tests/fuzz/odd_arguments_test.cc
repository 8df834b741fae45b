// Every operation of the registry with odd arguments: any rank, dtype, size and memory layout, huge sizes, undefined
// tensors, tensors on another device and tensors that share memory. Each call returns what the same call returns for
// separate contiguous copies, or throws an Error; other arguments than the first one of an in-place operation keep
// their bytes. Backward of a result also returns or throws an Error.
//
// TANDEM_FUZZ_ROUNDS (default 40) is the number of calls per declaration, TANDEM_FUZZ_SEED changes the arguments.
#include <tandem/base/env.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing { namespace {

constexpr int64_t kMaxElements = 4096;  // of tensors that are read
constexpr DType kDTypes[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

int64_t setting(const char* name, int64_t otherwise) {
  const auto text = env_string(name);
  return text ? std::stoll(*text) : otherwise;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  template <class T, size_t n>
  T one_of(const T (&list)[n]) {
    return list[below(n)];
  }

  /// A shape like that of the case: with other sizes, dimensions removed, added or exchanged; or any shape.
  Shape shape(Shape like) {
    if (chance(0.5)) return like;
    if (chance(0.3)) {
      like = Shape();
      for (int64_t rank = below(6); rank > 0; --rank) like.push_back(size());
      return like;
    }
    if (like.empty() || chance(0.3)) {
      like.insert(static_cast<size_t>(below(like.dim() + 1)), chance(0.5) ? 1 : size());
    } else {
      like[static_cast<size_t>(below(like.dim()))] = size();
    }
    return like;
  }

  /// Values in the input's range, or odd ones.
  Dense values(const Input& input, const Shape& shape, DType dtype) {
    Dense result = random_dense(shape, random_(), input.low, input.high);
    const bool is_odd = chance(0.15);
    const double odd[] = {0, -1, 1, 1e30, -1e30, INFINITY, NAN, 255, 2147483648.0, -9223372036854775808.0};
    for (double& value : result.values) {
      if (!is_floating_point(dtype)) value = std::floor(value);
      if (is_odd && chance(0.3)) value = one_of(odd);
    }
    return result;
  }

  Tensor tensor(const Input& input, DType common, bool may_be_huge) {
    if (chance(0.03)) return {};
    const DType dtype = chance(0.8) ? input.dtype.value_or(common) : one_of(kDTypes);
    const Device device = chance(0.03) ? other_device() : test_device();
    if (chance(0.08)) return huge(dtype, device, may_be_huge);
    const Shape drawn = shape(input.shape);
    if (num_elements(drawn) > kMaxElements) return zeros({}, {dtype, device});
    return make_tensor(values(input, drawn, dtype), dtype, one_of(kLayouts), device);
  }

 private:
  int64_t size() {
    const int64_t sizes[] = {0, 1, 1, 2, 3, 5, 7, 8, 17, 33};
    return one_of(sizes);
  }

  static Device other_device() { return Device(test_device().is_cpu() ? "cpu:1" : "cpu"); }

  /// An expanded tensor of more elements than an allocation may have, or without elements but with large sizes.
  Tensor huge(DType dtype, Device device, bool with_elements) {
    if (!with_elements) {
      Shape shape = {4099, (1 << 16) + below(2), 8 + below(2)};
      shape[static_cast<size_t>(below(3))] = 0;
      return empty(shape, {dtype, device});
    }
    const int64_t sizes[] = {int64_t{1} << 31, (int64_t{1} << 31) + 1, int64_t{1} << 33, int64_t{1} << 40};
    Shape shape = {one_of(sizes)};
    for (int64_t room = (int64_t{1} << 59) / shape[0]; room > 2; room /= shape.back()) {
      shape.push_back(1 + below(std::min(room, int64_t{1} << 31)));
    }
    return make_view(zeros({1}, {dtype, device}).storage(), dtype, shape, Shape(std::vector<int64_t>(shape.size())), 0);
  }

  std::mt19937_64 random_;
};

/// Whether the operation writes to the input.
bool is_written(const OpCase& op, size_t i) {
  return (op.in_place && i == 0) || std::string(op.inputs[i].name).starts_with("running_");
}

/// Tensors that share memory: the same tensor twice, its transpose, overlapping slices or the same bytes as integers.
void share_memory(Draw& draw, const OpCase& op, Tensors& tensors) {
  if (tensors.size() < 2 || !draw.chance(0.2)) return;
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (is_written(op, i)) return;
  }
  const Tensor& from = tensors[static_cast<size_t>(draw.below(static_cast<int64_t>(tensors.size())))];
  Tensor& to = tensors[static_cast<size_t>(draw.below(static_cast<int64_t>(tensors.size())))];
  if (!from.defined() || !to.defined() || from.numel() == 0) return;
  Shape shape = from.shape(), strides = from.strides();
  const int64_t kind = draw.below(3);
  if (kind == 0 && shape.size() >= 2) {
    std::swap(shape[0], shape[1]);
    std::swap(strides[0], strides[1]);
  } else if (kind == 1 && !shape.empty() && shape[0] > 1) {
    shape[0] -= 1;
    to = make_view(from.storage(), from.dtype(), shape, strides, from.impl().offset + strides[0]);
    return;
  }
  to = make_view(from.storage(), from.dtype(), shape, strides, from.impl().offset);
}

std::vector<uint8_t> storage_bytes(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return make_view(tensor.storage(), kUInt8, {tensor.storage()->num_bytes()}, {1}, 0).to_vector<uint8_t>();
}

bool is_readable(const Tensor& tensor) { return tensor.defined() && tensor.numel() <= kMaxElements * 64; }

/// The sum of the absolute values of floating tensors, which bounds the rounding errors of sums.
double magnitude(const Tensors& tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors) {
    if (!is_floating_point(tensor.dtype())) continue;
    for (const double value : tensor.to_vector<double>()) sum += std::abs(value);
  }
  return sum;
}

/// Whether the values are equal within `tolerance`; any NaN is equal to any NaN.
bool same_values(const Tensor& a, const Tensor& b, double tolerance) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (!is_readable(a)) return true;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i])) && !(std::abs(x[i] - y[i]) <= tolerance)) return false;
  }
  return true;
}

struct Outcome {
  Tensors results;
  std::string error;  ///< of an Error
  bool is_out_of_memory = false;
};

/// Fails for an exception that is no Error.
Outcome attempt(const std::function<Tensors()>& f) {
  Outcome outcome;
  try {
    outcome.results = f();
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.is_out_of_memory = dynamic_cast<const OutOfMemory*>(&error) != nullptr;
    EXPECT_NE(outcome.error, "");
  } catch (const std::exception& error) {
    outcome.error = error.what();
    ADD_FAILURE() << "not an Error: " << error.what();
  }
  return outcome;
}

/// A tensor that overlaps itself has no defined result of an in-place operation, unless the operation rejects it.
bool overlaps_itself(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  int64_t span = 1;
  for (size_t d = 0; d < tensor.shape().size(); ++d) span += (tensor.shape()[d] - 1) * tensor.strides()[d];
  return tensor.numel() > span;
}

class OddArguments : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    set_cpu_device_count(2);
    set_memory_limit(test_device(), int64_t{1} << 30);
  }
  void TearDown() override { set_memory_limit(test_device(), 0); }
};

void check_call(Draw& draw, const OpCase& op) {
  const bool may_be_huge = op.broadcasts && !op.in_place;
  const DType common = draw.one_of(kDTypes);
  Tensors inputs;
  for (const Input& input : op.inputs) inputs.push_back(draw.tensor(input, common, may_be_huge));
  share_memory(draw, op, inputs);
  std::string text = op.name;
  for (const Tensor& input : inputs) {
    text += "\n  " + describe(input);
    if (input.defined()) text += str(" strides ", input.strides(), " storage ", input.storage()->data());
  }
  SCOPED_TRACE(text);

  const bool can_copy = std::all_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return is_readable(t); });
  Tensors copies;
  if (can_copy) {
    for (const Tensor& input : inputs) copies.push_back(input.clone());
  }
  std::vector<std::vector<uint8_t>> before;
  for (const Tensor& input : inputs) before.push_back(storage_bytes(input));
  const bool is_undefined = op.in_place && (!inputs[0].defined() || overlaps_itself(inputs[0]));

  const auto call = [&](const Tensors& arguments) {
    manual_seed(1);
    return op.run(arguments).tensors;
  };
  const Outcome outcome = attempt([&] { return call(inputs); });
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool shares =
        op.in_place && inputs[i].defined() && inputs[0].defined() && inputs[i].storage() == inputs[0].storage();
    const bool may_change = outcome.error.empty() && (shares || is_written(op, i));
    EXPECT_TRUE(may_change || storage_bytes(inputs[i]) == before[i]) << op.inputs[i].name << " was changed";
  }
  if (!outcome.error.empty()) return;
  if (can_copy && !is_undefined) {
    const Outcome expected = attempt([&] { return call(copies); });
    if (expected.is_out_of_memory) return;  // the first results still occupy memory
    ASSERT_EQ(expected.error, "") << "contiguous copies are rejected";
    ASSERT_EQ(outcome.results.size(), expected.results.size());
    // The order of a sum depends on strides.
    const double sum = magnitude(copies);
    if (!std::isfinite(sum)) return;
    for (size_t i = 0; i < expected.results.size(); ++i) {
      if (!expected.results[i].defined()) {
        EXPECT_FALSE(outcome.results[i].defined()) << "result " << i;
        continue;
      }
      const double tolerance = 8 * epsilon(expected.results[i].dtype()) * (1 + sum * sum);
      EXPECT_TRUE(same_values(outcome.results[i], expected.results[i], tolerance))
          << "result " << i << " is " << to_string(outcome.results[i]) << ", for contiguous copies "
          << to_string(expected.results[i]);
    }
  }

  if (op.in_place || !op.has_gradient || !draw.chance(0.5)) return;
  attempt([&] {
    Tensors leaves;
    for (const Tensor& input : inputs) {
      const bool is_leaf = input.defined() && is_floating_point(input.dtype());
      leaves.push_back(is_leaf ? input.detach().requires_grad_() : input);
    }
    for (const Tensor& result : call(leaves)) {
      if (is_readable(result) && result.requires_grad()) result.backward(ones_like(result.detach()), true);
    }
    return Tensors();
  });
}

TEST_P(OddArguments, GiveAnErrorOrTheResult) {
  const Operation& operation = op_cases().operations[GetParam()];
  const int64_t rounds = setting("TANDEM_FUZZ_ROUNDS", 40), seed = setting("TANDEM_FUZZ_SEED", 0);
  for (int64_t round = 0; round < rounds && !HasFailure(); ++round) {
    Draw draw(static_cast<uint64_t>(seed + round) * 1000 + GetParam());
    SCOPED_TRACE(str("round ", round, " of ", operation.declaration));
    check_call(draw, operation.cases[static_cast<size_t>(draw.below(static_cast<int64_t>(operation.cases.size())))]);
  }
}

/// Indices of the operations whose operands are on one device.
std::vector<size_t> operations_with_cases() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < op_cases().operations.size(); ++i) {
    if (!op_cases().operations[i].cases.empty()) indices.push_back(i);
  }
  return indices;
}

INSTANTIATE_TEST_SUITE_P(Operations, OddArguments, ::testing::ValuesIn(operations_with_cases()), [](const auto& param) {
  const Operation& operation = op_cases().operations[param.param];
  std::string name = str(param.param, "_", operation.name());
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}}  // namespace tandem::testing
