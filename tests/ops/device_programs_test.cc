// Random programs of copies and sums on four devices, compared with the same programs on one device.
#include <tandem/tests/ops/four_devices.h>

namespace tandem::testing { namespace {

class MultiDeviceProgram : public FourDevices, public ::testing::WithParamInterface<int> {
 protected:
  /// A tensor on any device, and its expected values on cpu.
  struct Value {
    Tensor tensor;
    Tensor expected;
  };

  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Device any_device() { return on(static_cast<int>(pick(kDevices))); }
  const Value& any() { return values_[static_cast<size_t>(pick(static_cast<int64_t>(values_.size())))]; }

  /// Random chunk sizes and numbers in flight; in one of four cases a failure or cancellation at a random chunk.
  TransferOptions any_options() {
    TransferOptions options{.chunk_bytes = 4 << pick(9), .max_in_flight = static_cast<int>(1 + pick(3))};
    if (pick(4) == 0) {
      auto left = std::make_shared<std::atomic<int64_t>>(pick(6));
      options.progress = [left](int64_t, int64_t) {
        if ((*left)-- == 0) throw std::runtime_error("planted");
      };
    }
    return options;
  }

  /// Integers, so that sums are exact.
  Value fresh() {
    const Shape shapes[] = {{12}, {1}, {0}, {5, 7}, {64, 33}, {3, 1, 50}};
    const Shape shape = shapes[pick(6)];
    Dense values = random_dense(shape, random_(), -9, 9);
    for (double& v : values.values) v = std::floor(v);
    const Layout layout = shape.size() > 1 ? kLayouts[pick(3)] : Layout::kContiguous;
    return {make_tensor(values, kFloat32, layout, any_device()), make_tensor(values, kFloat32)};
  }
  /// Other values of the same shape, on any devices.
  std::vector<Value> alike(const Value& value) {
    std::vector<Value> result;
    for (const Value& other : values_) {
      if (other.expected.shape() == value.expected.shape()) result.push_back(other);
    }
    std::shuffle(result.begin(), result.end(), random_);
    result.resize(std::min<size_t>(result.size(), static_cast<size_t>(1 + pick(4))));
    return result;
  }
  static std::vector<Tensor> tensors(const std::vector<Value>& values) {
    std::vector<Tensor> list;
    for (const Value& value : values) list.push_back(value.tensor);
    return list;
  }
  static Tensor sum(const std::vector<Value>& values) {
    Tensor total = values[0].expected.clone();
    for (size_t i = 1; i < values.size(); ++i) total.add_(values[i].expected);
    return total;
  }
  /// The first value of each device.
  static std::vector<Value> one_per_device(std::vector<Value> values) {
    std::vector<Value> result;
    for (Value& value : values) {
      const auto same = [&](const Value& other) { return other.tensor.device() == value.tensor.device(); };
      if (std::none_of(result.begin(), result.end(), same)) result.push_back(value);
    }
    return result;
  }

  /// Runs one operation; its results are added to the values. Throws planted failures.
  void step() {
    const TransferOptions options = any_options();
    const Value x = any();
    const std::vector<Value> list = alike(x);
    const Device device = any_device();
    std::vector<Value> made;
    switch (pick(9)) {
      case 0: made = {{to(x.tensor, device), x.expected}}; break;
      case 1: {
        const Future<Tensor> future = to_async(x.tensor, device, options);
        if (pick(4) == 0 && future.cancel()) {
          EXPECT_THROW(static_cast<void>(future.get()), CancelledError);
        }
        if (future.exception() == nullptr) made = {{future.get(), x.expected}};  // throws planted failures
        break;
      }
      case 2: {
        const std::vector<Tensor> moved = gather_to(device, tensors(list), options);
        for (size_t i = 0; i < list.size(); ++i) made.push_back({moved[i], list[i].expected});
        break;
      }
      case 3: made = {{comm::sum_to(device, tensors(list), options), sum(list)}}; break;
      case 4: {
        const std::vector<Value> apart = one_per_device(list);
        const Tensor total = sum(apart);
        for (const Tensor& out : comm::all_reduce(tensors(apart), options)) made.push_back({out, total});
        break;
      }
      case 5:
        for (const Tensor& out : comm::broadcast(x.tensor, {device, any_device()}, options))
          made.push_back({out, x.expected});
        break;
      case 6: {
        const int64_t dim = pick(x.expected.dim());
        int64_t begin = 0;
        for (const Tensor& out : comm::scatter(x.tensor, {device, any_device(), any_device()}, dim, options)) {
          made.push_back({out, x.expected.slice(dim, begin, begin + out.size(dim))});
          begin += out.size(dim);
        }
        break;
      }
      case 7: {
        std::vector<Tensor> expected;
        for (const Value& value : list) expected.push_back(value.expected);
        const int64_t dim = pick(x.expected.dim());
        made = {{comm::gather(tensors(list), dim, device, options), cat(expected, dim)}};
        break;
      }
      default: made = {fresh()};
    }
    for (const Value& value : made) {
      ASSERT_EQ(value.tensor.to_vector<float>(), value.expected.to_vector<float>());
      if (value.expected.numel() < 5000) values_.push_back(value);
    }
    while (values_.size() > 24) values_.erase(values_.begin() + pick(static_cast<int64_t>(values_.size())));
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  std::vector<Value> values_;
};

TEST_P(MultiDeviceProgram, RandomOperationsMatchSingleDeviceResults) {
  for (int i = 0; i < 8; ++i) values_.push_back(fresh());
  int failures = 0;
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) {
    const int64_t before[] = {taken(0), taken(1), taken(2), taken(3)};
    try {
      step();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "planted");
      ++failures;
      for (int d = 0; d < kDevices; ++d) EXPECT_EQ(taken(d), before[d]) << "something was left on " << on(d);
    }
  }
  EXPECT_GT(failures, 0);  // the number depends on which cancellations came in time
  for (const Value& value : values_) EXPECT_EQ(value.tensor.to_vector<float>(), value.expected.to_vector<float>());
  values_.clear();
}

INSTANTIATE_TEST_SUITE_P(Seeds, MultiDeviceProgram, ::testing::Range(1, 13));

}}  // namespace tandem::testing
