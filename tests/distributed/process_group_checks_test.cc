// Argument checks of ProcessGroup before anything is sent, with the full text of each error.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/tensor/device.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Tensors = std::vector<Tensor>;
using Splits = std::vector<int64_t>;

/// The type and text of the error of f.
template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const ShapeError& e) {
    return str("ShapeError ", e.what());
  } catch (const DTypeError& e) {
    return str("DTypeError ", e.what());
  } catch (const DeviceError& e) {
    return str("DeviceError ", e.what());
  } catch (const ValueError& e) {
    return str("ValueError ", e.what());
  } catch (const StateError& e) {
    return str("StateError ", e.what());
  }
  return "nothing";
}

/// Runs the checks on both ranks, then checks that the group is still usable.
void on_two_ranks(const std::function<void(ProcessGroup&)>& checks) {
  const auto thrown = run_all({.world_size = 2}, [&](ProcessGroup& g) {
    checks(g);
    const Tensor x = full({3}, 1);
    g.all_reduce(x);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 2));
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

Tensor expanded(const Shape& shape) {
  return make_view(zeros({1}).storage(), kFloat32, shape, Shape(std::vector<int64_t>(shape.size(), 0)), 0);
}

/// Rows [begin, begin + rows) of a [10, 4] matrix.
Tensor rows_of(const Tensor& matrix, int64_t begin, int64_t rows) {
  return make_view(matrix.storage(), kFloat32, {rows, 4}, {4, 1}, begin * 4);
}

TEST(ArgumentChecks, UnsupportedDevicesAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    float memory[8] = {};
    const auto storage = Storage::adopt(Device(DeviceType::kCUDA, 1), memory, sizeof(memory), {});
    const Tensor far = make_view(storage, kFloat32, {2}, {1}, 0);
    const Tensor near = zeros({2});
    const std::string is_far = ": this build supports CPU tensors only; build with --config=cuda\n  ";
    const std::string shown = "  float32 [2] on cuda:1";
    EXPECT_EQ(refusal([&] { g.all_reduce(far); }), "DeviceError all_reduce" + is_far + "tensor" + shown);
    EXPECT_EQ(refusal([&] { g.all_reduce(near, far); }), "DeviceError all_reduce" + is_far + "input" + shown);
    EXPECT_EQ(refusal([&] { g.broadcast(far, 0); }), "DeviceError broadcast" + is_far + "tensor" + shown);
    EXPECT_EQ(refusal([&] { g.reduce(far, 0); }), "DeviceError reduce" + is_far + "tensor" + shown);
    EXPECT_EQ(refusal([&] {
                g.all_gather(Tensors{near, far}, near);
              }),
              "DeviceError all_gather" + is_far + "outputs[1]" + shown);
    EXPECT_EQ(refusal([&] { g.scatter(far, Tensor(), 1 - g.rank()); }),
              "DeviceError scatter" + is_far + "output" + shown);
    EXPECT_EQ(refusal([&] {
                g.all_to_all(Tensors{near, near}, Tensors{far, near});
              }),
              "DeviceError all_to_all" + is_far + "inputs[0]" + shown);
    EXPECT_EQ(refusal([&] { g.send(far, 1 - g.rank()); }), "DeviceError send" + is_far + "tensor" + shown);
    EXPECT_EQ(refusal([&] {
                g.broadcast_coalesced({near, far}, 0);
              }),
              "DeviceError broadcast_coalesced" + is_far + "tensors[1]" + shown);
    EXPECT_EQ(refusal([&] { g.reduce_mean(far); }), "DeviceError reduce_mean" + is_far + "tensor" + shown);
    EXPECT_EQ(near.version(), 0u);
  });
}

TEST(ArgumentChecks, MixedDevicesAreRejected) {
  set_cpu_device_count(2);
  on_two_ranks([](ProcessGroup& g) {
    const Tensor here = zeros({2});
    const Tensor there = zeros({2}, {kFloat32, Device(DeviceType::kCPU, 1)});
    EXPECT_EQ(refusal([&] { g.all_reduce(here, there); }),
              "DeviceError all_reduce: devices differ\n"
              "  output  float32 [2] on cpu\n"
              "  input   float32 [2] on cpu:1");
    EXPECT_EQ(refusal([&] {
                g.all_reduce_coalesced({here, there});
              }),
              "DeviceError all_reduce_coalesced: devices differ\n"
              "  tensors[1]  float32 [2] on cpu:1\n"
              "  tensors[0]  float32 [2] on cpu");
    const Tensor two = zeros({2, 2});
    const Tensor two_there = zeros({2, 2}, there.options());
    EXPECT_EQ(refusal([&] {
                g.all_gather_coalesced({two, two_there}, {here, there});
              }),
              "DeviceError all_gather_coalesced: devices differ\n"
              "  inputs[1]  float32 [2] on cpu:1\n"
              "  inputs[0]  float32 [2] on cpu");
    g.all_reduce(there);  // any GPU is accepted
  });
}

TEST(ArgumentChecks, UndefinedTensorsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const Tensor x = zeros({2});
    EXPECT_EQ(refusal([&] { g.reduce({}, 0); }), "StateError reduce: tensor is undefined");
    EXPECT_EQ(refusal([&] { g.gather(Tensor(), x, g.rank()); }), "StateError gather: output is undefined");
    EXPECT_EQ(refusal([&] {
                g.gather(Tensors{x, Tensor()}, x, g.rank());
              }),
              "StateError gather: outputs[1] is undefined");
    EXPECT_EQ(refusal([&] { g.scatter(x, Tensor(), g.rank()); }), "StateError scatter: input is undefined");
    EXPECT_EQ(refusal([&] { g.reduce_scatter(Tensor(), x); }), "StateError reduce_scatter: output is undefined");
    EXPECT_EQ(refusal([&] {
                g.all_reduce_coalesced({x, {}});
              }),
              "StateError all_reduce_coalesced: tensors[1] is undefined");
    EXPECT_EQ(x.version(), 0u);
  });
}

TEST(ArgumentChecks, NonRootTensorsAndInvalidRootsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const Tensor x = zeros({2});
    const int other = 1 - g.rank();
    EXPECT_EQ(refusal([&] {
                g.gather(zeros({2, 2}), x, other);
              }),
              str("ValueError gather: output must be undefined on ranks other than root ", other,
                  "\n  output  float32 [2, 2] on cpu"));
    EXPECT_EQ(refusal([&] {
                g.gather(Tensors{x, x}, x, other);
              }),
              str("ValueError gather: outputs must be empty on ranks other than root ", other, ", but has 2 elements"));
    EXPECT_EQ(refusal([&] {
                g.scatter(x, zeros({2, 2}), other);
              }),
              str("ValueError scatter: input must be undefined on ranks other than root ", other,
                  "\n  input  float32 [2, 2] on cpu"));
    EXPECT_EQ(refusal([&] { g.scatter(x, Tensors{x}, other); }),
              str("ValueError scatter: inputs must be empty on ranks other than root ", other, ", but has 1 element"));
    for (const int root : {-1, 2}) {
      const std::string range = str("root ", root, " is not in [0, 2)");
      EXPECT_EQ(refusal([&] { g.reduce(x, root); }), "ValueError reduce: " + range);
      EXPECT_EQ(refusal([&] { g.gather(Tensor(), x, root); }), "ValueError gather: " + range);
      EXPECT_EQ(refusal([&] { g.scatter(x, Tensor(), root); }), "ValueError scatter: " + range);
      EXPECT_EQ(refusal([&] { g.broadcast_coalesced({x}, root); }), "ValueError broadcast_coalesced: " + range);
    }
  });
}

TEST(ArgumentChecks, MismatchedShapesAndListLengthsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const Tensor x = zeros({3});
    EXPECT_EQ(refusal([&] { g.all_reduce(zeros({4}), x); }),
              "ShapeError all_reduce: output must be [3]\n  output  float32 [4] on cpu\n  input   float32 [3] on cpu");
    EXPECT_EQ(refusal([&] { g.gather(zeros({6}), x, g.rank()); }),
              "ShapeError gather: output must be [2, 3]\n  output  float32 [6] on cpu\n  input   float32 [3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.gather(Tensors{x, zeros({4})}, x, g.rank());
              }),
              "ShapeError gather: outputs[1] must be [3]\n"
              "  outputs[1]  float32 [4] on cpu\n"
              "  input       float32 [3] on cpu");
    EXPECT_EQ(refusal([&] { g.all_gather(Tensors{x}, x); }),
              "ValueError all_gather: outputs has 1 element for a group of 2 ranks");
    EXPECT_EQ(refusal([&] {
                g.all_gather(Tensors{zeros({5}), zeros({5})}, x);
              }),
              str("ShapeError all_gather: outputs[", g.rank(), "] must be [3]\n  outputs[", g.rank(),
                  "]  float32 [5] on cpu\n  input       float32 [3] on cpu"));
    EXPECT_EQ(
        refusal([&] {
          g.scatter(x, zeros({3, 3}), g.rank());
        }),
        "ShapeError scatter: input must be [2, 3]\n  input   float32 [3, 3] on cpu\n  output  float32 [3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.reduce_scatter(x, Tensors{x, x, x});
              }),
              "ValueError reduce_scatter: inputs has 3 elements for a group of 2 ranks");
    EXPECT_EQ(refusal([&] {
                g.reduce_scatter(x, zeros({2, 4}));
              }),
              "ShapeError reduce_scatter: input must be [2, 3]\n"
              "  input   float32 [2, 4] on cpu\n"
              "  output  float32 [3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(zeros({3, 2}), zeros({3, 2}));
              }),
              "ShapeError all_to_all: input must be [2, ...]\n  input  float32 [3, 2] on cpu");
    EXPECT_EQ(refusal([&] { g.all_to_all(zeros({}), zeros({})); }),
              "ShapeError all_to_all: input must be [2, ...]\n  input  float32 [] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(zeros({2, 3}), zeros({2, 2}));
              }),
              "ShapeError all_to_all: output must be [2, 2]\n"
              "  output  float32 [2, 3] on cpu\n"
              "  input   float32 [2, 2] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(Tensors{zeros({1}), zeros({1})}, Tensors{zeros({2}), zeros({2})});
              }),
              str("ShapeError all_to_all: outputs[", g.rank(), "] must be [2]\n  outputs[", g.rank(),
                  "]  float32 [1] on cpu\n  inputs[", g.rank(), "]   float32 [2] on cpu"));
    EXPECT_EQ(refusal([&] {
                g.all_gather_coalesced({zeros({2, 3})}, {x, x});
              }),
              "ValueError all_gather_coalesced: outputs and inputs have 1 and 2 elements");
    EXPECT_EQ(refusal([&] {
                g.reduce_scatter_coalesced({x}, {zeros({2, 4})});
              }),
              "ShapeError reduce_scatter_coalesced: inputs[0] must be [2, 3]\n"
              "  inputs[0]   float32 [2, 4] on cpu\n"
              "  outputs[0]  float32 [3] on cpu");
    EXPECT_EQ(x.version(), 0u);
  });
}

TEST(ArgumentChecks, InvalidSplitsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const Tensor five = zeros({5, 3});
    const Tensor four = zeros({4, 3});
    EXPECT_EQ(refusal([&] {
                g.all_to_all(four, five, {2, 2}, {2, 2});
              }),
              "ShapeError all_to_all: input must be [4, ...] for input_splits [2, 2]\n  input  float32 [5, 3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(four, five, {2, 1}, {2, 3});
              }),
              "ShapeError all_to_all: output must be [3, ...] for output_splits [2, 1]\n"
              "  output  float32 [4, 3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(four, four, {5, -1}, {2, 2});
              }),
              "ValueError all_to_all: output_splits [5, -1] has a negative element");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(four, four, {2, 2}, {4});
              }),
              "ValueError all_to_all: input_splits has 1 element for a group of 2 ranks");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(zeros({4, 2}), four, {2, 2}, {2, 2});
              }),
              "ShapeError all_to_all: output must be [4, 3]\n"
              "  output  float32 [4, 2] on cpu\n"
              "  input   float32 [4, 3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(four, four, {1, 3}, {3, 1});
              }),
              str("ValueError all_to_all: output_splits[", g.rank(), "] (", g.rank() == 0 ? 1 : 3,
                  ") and input_splits[", g.rank(), "] (", g.rank() == 0 ? 3 : 1,
                  ") must be equal: both count the rows that this rank sends to itself"));
  });
}

TEST(ArgumentChecks, InvalidDtypesAndOperatorsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const Tensor f = zeros({2});
    const Tensor i = zeros({2}, {kInt32});
    EXPECT_EQ(refusal([&] { g.all_reduce(f, i); }),
              "DTypeError all_reduce: dtypes differ\n  output  float32 [2] on cpu\n  input   int32 [2] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_gather(Tensors{f, i}, f);
              }),
              "DTypeError all_gather: dtypes differ\n"
              "  outputs[1]  int32 [2] on cpu\n"
              "  input       float32 [2] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(Tensors{f, f}, Tensors{f, i});
              }),
              "DTypeError all_to_all: dtypes differ\n"
              "  inputs[1]  int32 [2] on cpu\n"
              "  inputs[0]  float32 [2] on cpu");
    EXPECT_EQ(refusal([&] { g.reduce(i, 0, ReduceOp::kAvg); }),
              "DTypeError reduce: avg requires a floating-point dtype\n  tensor  int32 [2] on cpu");
    for (const auto& [op, name] : {std::pair(ReduceOp::kBitAnd, "bitand"), std::pair(ReduceOp::kBitOr, "bitor"),
                                   std::pair(ReduceOp::kBitXor, "bitxor")}) {
      EXPECT_EQ(
          refusal([&] { g.all_reduce(f, op); }),
          str("DTypeError all_reduce: ", name, " requires an integer or bool dtype\n  tensor  float32 [2] on cpu"));
    }
    EXPECT_EQ(refusal([&] {
                g.reduce_scatter(f, zeros({2, 2}), ReduceOp::kBitOr);
              }),
              "DTypeError reduce_scatter: bitor requires an integer or bool dtype\n  output  float32 [2] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_reduce_coalesced({f, i}, ReduceOp::kAvg);
              }),
              "DTypeError all_reduce_coalesced: avg requires a floating-point dtype\n  tensors[1]  int32 [2] on cpu");
  });
}

TEST(ArgumentChecks, ExpandedOutputsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const std::string cannot =
        " is expanded, so its elements share memory and cannot be written; pass a contiguous tensor\n  ";
    const Tensor x = zeros({3});
    EXPECT_EQ(refusal([&] { g.reduce(expanded({3}), 0); }),
              "ValueError reduce: tensor" + cannot + "tensor  float32 [3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_gather(expanded({2, 3}), x);
              }),
              "ValueError all_gather: output" + cannot + "output  float32 [2, 3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_to_all(Tensors{x, expanded({3})}, Tensors{x, x});
              }),
              "ValueError all_to_all: outputs[1]" + cannot + "outputs[1]  float32 [3] on cpu");
    EXPECT_EQ(refusal([&] {
                g.all_gather_coalesced({expanded({2, 3})}, {x});
              }),
              "ValueError all_gather_coalesced: outputs[0]" + cannot + "outputs[0]  float32 [2, 3] on cpu");
    g.all_reduce(x, expanded({3}));  // allowed as an input
  });
}

TEST(ArgumentChecks, OverlappingInputsAndOutputsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const int rank = g.rank();
    const Tensor m = zeros({10, 4});
    const auto overlap = [](const std::string& op, const std::string& a, const std::string& b) {
      return "ValueError " + op + ": " + a + " and " + b + " share memory; pass tensors that do not overlap";
    };
    EXPECT_EQ(refusal([&] { g.all_reduce(rows_of(m, 0, 3), rows_of(m, 2, 3)); }),
              "ValueError all_reduce: output and input share memory; pass tensors that do not overlap\n"
              "  output  float32 [3, 4] on cpu\n"
              "  input   float32 [3, 4] on cpu");
    const auto starts_with = [](const std::string& text, const std::string& start) { return text.find(start) == 0; };
    const Tensor stacked = make_view(m.storage(), kFloat32, {2, 1, 4}, {4, 4, 1}, 0);
    EXPECT_TRUE(starts_with(refusal([&] { g.all_gather(stacked, rows_of(m, 1 - rank, 1)); }),
                            overlap("all_gather", "output", "input")));
    EXPECT_TRUE(starts_with(refusal([&] { g.gather(stacked, rows_of(m, 1 - rank, 1), rank); }),
                            overlap("gather", "output", "input")));
    EXPECT_TRUE(starts_with(refusal([&] { g.scatter(rows_of(m, 1 - rank, 1), stacked, rank); }),
                            overlap("scatter", "input", "output")));
    EXPECT_TRUE(starts_with(refusal([&] { g.reduce_scatter(rows_of(m, 1 - rank, 1), stacked); }),
                            overlap("reduce_scatter", "input", "output")));
    EXPECT_TRUE(
        starts_with(refusal([&] { g.all_to_all(stacked, stacked); }), overlap("all_to_all", "output", "input")));
    EXPECT_TRUE(starts_with(refusal([&] {
                              g.all_gather(Tensors{rows_of(m, 0, 2), rows_of(m, 1, 2)}, rows_of(m, 6, 2));
                            }),
                            overlap("all_gather", "outputs[0]", "outputs[1]")));
    EXPECT_EQ(m.version(), 0u);
    // Adjacent memory does not overlap, and identical memory means in place.
    g.all_reduce(rows_of(m, 0, 3), rows_of(m, 3, 3));
    g.all_reduce(rows_of(m, 0, 3), rows_of(m, 0, 3));
    g.all_gather(stacked, rows_of(m, rank, 1));
  });
}

TEST(ArgumentChecks, NegativeTimeoutsAreRejected) {
  on_two_ranks([](ProcessGroup& g) {
    const CollectiveOptions options{.timeout = std::chrono::milliseconds(-5)};
    EXPECT_EQ(refusal([&] { g.all_reduce(zeros({1}), ReduceOp::kSum, options); }),
              "ValueError all_reduce: timeout must not be negative, got -5 ms");
    EXPECT_EQ(refusal([&] { g.send(zeros({1}), 1 - g.rank(), 0, options); }),
              "ValueError send: timeout must not be negative, got -5 ms");
    EXPECT_EQ(refusal([&] { g.monitored_barrier(options); }),
              "ValueError monitored_barrier: timeout must not be negative, got -5 ms");
  });
}

TEST(ArgumentChecks, InvalidGroupOptionsAreRejected) {
  const auto create = [](ProcessGroupOptions options) {
    options.store = make_memory_store();
    return refusal([&] { (void)ProcessGroup::create(options); });
  };
  EXPECT_EQ(create({.store = nullptr, .rank = 0, .world_size = 2, .timeout = std::chrono::milliseconds(-1)}),
            "ValueError ProcessGroup: timeout must not be negative, got -1 ms");
  EXPECT_EQ(create({.store = nullptr, .rank = 0, .world_size = 2, .ranks = {4}}),
            "ValueError ProcessGroup: ranks has 1 elements for a world of 2");
  EXPECT_EQ(create({.store = nullptr, .rank = 0, .world_size = 2, .ranks = {4, 4}}),
            "ValueError ProcessGroup: ranks must be non-negative and ascending, but ranks[1] is 4");
  EXPECT_EQ(create({.store = nullptr, .rank = 0, .world_size = 2, .ranks = {-1, 4}}),
            "ValueError ProcessGroup: ranks must be non-negative and ascending, but ranks[0] is -1");
}

}}}}  // namespace tandem::v0::distributed
