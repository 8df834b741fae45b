#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

/// y = 2 x; backward writes directly into the gradient slot if possible, and counts this.
struct DirectNode final : autograd::Node {
  autograd::Leaf* leaf = nullptr;
  int* direct = nullptr;
  bool* accumulated = nullptr;
  TensorList backward(autograd::BackwardContext& context) override {
    const auto buffer = context.grad_buffer(0, context.grad().shape(), kFloat64);
    if (buffer.tensor.is_same(leaf->slot())) ++*direct;
    *accumulated = buffer.accumulate;
    const std::vector<double> g = context.grad().to_vector<double>();
    auto* out = buffer.tensor.data<double>();
    for (size_t i = 0; i < g.size(); ++i) out[i] = (buffer.accumulate ? out[i] : 0) + 2 * g[i];
    return {buffer.tensor};
  }
};

struct Direct {
  int count = 0;
  bool accumulated = false;
  Tensor operator()(const Tensor& x) {
    Tensor y = empty_like(x);
    {
      NoGradGuard no_grad;
      y.copy_(mul(x, Scalar(2)));
    }
    if (auto* node = autograd::record<DirectNode>("direct", y, x)) {
      node->leaf = &autograd::leaf(x);
      node->direct = &count;
      node->accumulated = &accumulated;
    }
    return y;
  }
};

const Tensor kOnes3 = from_vector<double>({1, 2, 3}, {3});

TEST(Leaf, SecondBackwardAccumulatesIntoWrittenSlot) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  direct(x).backward(kOnes3);
  EXPECT_EQ(direct.count, 1);
  EXPECT_FALSE(direct.accumulated);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 6}));
  direct(x).backward(kOnes3);
  EXPECT_TRUE(direct.accumulated);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 8, 12}));
}

TEST(Leaf, SlotIsWithheldWithTwoContributions) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  add(direct(x), direct(x)).backward(kOnes3);
  EXPECT_EQ(direct.count, 0);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 8, 12}));
}

TEST(Leaf, SlotIsWithheldUnderCreateGraphOrGrad) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  direct(x).backward(kOnes3, false, /*create_graph=*/true);
  Tensor y = direct(x);
  EXPECT_EQ(grad({&y, 1}, {&x, 1}, {&kOnes3, 1})[0].to_vector<double>(), (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(direct.count, 0);
}

TEST(Leaf, ZeroGradKeepsGradientMemory) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  direct(x).backward(kOnes3);
  const std::byte* memory = x.grad().data_ptr();
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  direct(x).backward(kOnes3);
  EXPECT_EQ(x.grad().data_ptr(), memory);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 6}));
}

TEST(Leaf, SlotIsWithheldWhenBackwardReadsIt) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  direct(x).backward(kOnes3);
  direct(x).backward(x.grad());  // d x = (2, 4, 6), to which (4, 8, 12) is added
  EXPECT_EQ(direct.count, 1);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 12, 18}));
}

TEST(Leaf, WritingTheSlotBumpsItsVersion) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Direct direct;
  direct(x).backward(kOnes3);
  const Tensor slot = x.grad();
  const uint32_t before = slot.version();
  direct(x).backward(kOnes3);  // written by the node
  EXPECT_EQ(slot.version(), before + 1);
  mul(x, Scalar(2)).backward(kOnes3);  // written by the engine
  EXPECT_EQ(slot.version(), before + 2);
  EXPECT_STREQ(slot.storage()->last_writer(), "backward");
}

TEST(Leaf, GradientFromCreateGraphIsNeverOverwritten) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Tensor y = from_vector<double>({4, 5, 6}, {3}).requires_grad_();
  const Tensor given = from_vector<double>({1, -1, 2}, {3});
  add(x, y).backward(given, false, /*create_graph=*/true);  // both slots are `given` itself
  add(x, y).backward(kOnes3);
  EXPECT_EQ(given.to_vector<double>(), (std::vector<double>{1, -1, 2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 1, 5}));
  EXPECT_EQ(y.grad().to_vector<double>(), (std::vector<double>{2, 1, 5}));
  x.zero_grad();
  add(x, y).backward(given, false, /*create_graph=*/true);
  x.zero_grad();
  Direct direct;
  direct(x).backward(kOnes3);
  EXPECT_EQ(given.to_vector<double>(), (std::vector<double>{1, -1, 2}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 6}));
}

TEST(Leaf, GradientIsWrittenIntoBucketSlot) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  Tensor bucket = full({8}, -1, {kFloat64});
  const auto slice = Storage::alias(bucket.storage(), 2 * 8, 3 * 8);
  autograd::Leaf& leaf = autograd::leaf(x);
  leaf.set_slot(make_view(slice, kFloat64, {3}, {1}, 0));
  EXPECT_TRUE(leaf.has_foreign_slot());
  mul(x, Scalar(7)).backward(kOnes3);
  EXPECT_EQ(bucket.to_vector<double>(), (std::vector<double>{-1, -1, 7, 14, 21, -1, -1, -1}));
  leaf.set_slot({});
  bucket.fill_(0);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{7, 14, 21}));
  EXPECT_FALSE(leaf.has_foreign_slot());
}

/// y = 2 x; backward writes into the gradient slot if possible, notifies the engine, and then checks whether hooks have
/// run.
struct AnnouncingNode final : autograd::Node {
  const int* hooks_run = nullptr;
  int* seen = nullptr;
  TensorList backward(autograd::BackwardContext& context) override {
    auto [out, accumulate] = context.grad_buffer(0, context.grad().shape(), kFloat64);
    NoGradGuard no_grad;
    out.copy_(mul(context.grad(), Scalar(2)));
    context.notify_ready(0, out);
    *seen = *hooks_run;
    return {out};
  }
};

TEST(Leaf, BucketHooksRunWhenGradientIsReady) {
  for (const bool in_bucket : {false, true}) {
    Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
    autograd::Leaf& leaf = autograd::leaf(x);
    if (in_bucket) leaf.set_slot(zeros({3}, {kFloat64}));
    int hooks_run = 0, seen = -1;
    const HookHandle hook = leaf.add_hook([&](const Tensor&) { ++hooks_run; });
    Tensor y = x.detach().clone();
    auto* node = autograd::record<AnnouncingNode>("announcing", y, x);
    node->hooks_run = &hooks_run;
    node->seen = &seen;
    y.backward(kOnes3);
    EXPECT_EQ(seen, in_bucket ? 1 : 0);
    EXPECT_EQ(hooks_run, 1);
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 4, 6}));
  }
}

TEST(Leaf, ExistingGradientIsCopiedIntoNewSlot) {
  Tensor x = from_vector<double>({1, 2, 3}, {3}).requires_grad_();
  mul(x, Scalar(7)).backward(kOnes3);
  Tensor slot = zeros({3}, {kFloat64});
  autograd::leaf(x).set_slot(slot);
  EXPECT_EQ(slot.to_vector<double>(), (std::vector<double>{7, 14, 21}));
  EXPECT_EQ(x.grad().data_ptr(), slot.data_ptr());
}

TEST(Leaf, SlotsOfOneBucketHaveSeparateVersions) {
  Tensor bucket = zeros({4}, {kFloat64});
  const auto a = Storage::alias(bucket.storage(), 0, 16);
  const auto b = Storage::alias(bucket.storage(), 16, 16);
  a->bump_version("test");
  EXPECT_EQ(a->version(), 1u);
  EXPECT_EQ(b->version(), 0u);
}

template <class E>
std::string set_slot_error(const Tensor& slot) {
  Tensor x = zeros({3, 2}, {kFloat64}).requires_grad_();
  autograd::leaf(x).name = "w";
  try {
    autograd::leaf(x).set_slot(slot);
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Leaf, MismatchedSlotIsRejected) {
  EXPECT_EQ(set_slot_error<ShapeError>(zeros({2, 3}, {kFloat64})),
            "set_slot: 'w' has shape [3, 2], slot has shape [2, 3]");
  EXPECT_EQ(set_slot_error<DTypeError>(zeros({3, 2})), "set_slot: 'w' is float64, slot is float32");
  EXPECT_EQ(set_slot_error<StateError>(make_view(zeros({6}, {kFloat64}).storage(), kFloat64, {3, 2}, {1, 3}, 0)),
            "set_slot: the slot of 'w' is not row-major");
}

TEST(Leaf, CreateGraphWithBucketSlotIsRejected) {
  Tensor x = from_vector<double>({3}, {1}).requires_grad_();
  autograd::leaf(x).name = "fc.weight";
  autograd::leaf(x).set_slot(zeros({1}, {kFloat64}));
  try {
    mul(x, x).backward({}, false, /*create_graph=*/true);
    FAIL() << "nothing was thrown";
  } catch (const StateError& error) {
    EXPECT_STREQ(error.what(),
                 "backward: create_graph is not possible for 'fc.weight', whose gradient is stored in a bucket of a "
                 "DistributedDataParallel; use grad(outputs, inputs)");
  }
}

TEST(Leaf, MoveToTransfersGradientAndKeepsHooks) {
  set_cpu_device_count(2);
  const Device other("cpu:1");
  Tensor x = from_vector<double>({1, 2}, {2}).requires_grad_();
  autograd::Leaf& leaf = autograd::leaf(x);
  int fired = 0;
  const HookHandle handle = leaf.add_hook([&](const Tensor& gradient) {
    EXPECT_EQ(gradient.device(), other);
    ++fired;
  });
  primitives::copy(from_vector<double>({3, 4}, {2}), leaf.slot());
  leaf.mark_filled();
  leaf.move_to(other, kFloat64);
  EXPECT_EQ(leaf.device(), other);
  EXPECT_EQ(leaf.grad().device(), other);
  EXPECT_EQ(leaf.grad().to_vector<double>(), (std::vector<double>{3, 4}));

  x.impl().storage = Storage::allocate(other, 16);
  primitives::fill(x, 1);
  Direct()(x).backward(full({2}, 0.5, {kFloat64, other}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 5}));
  EXPECT_EQ(fired, 1);

  leaf.set_slot(zeros({2}, {kFloat64, other}));
  EXPECT_THROW(leaf.move_to(Device(), kFloat64), StateError);
}

TEST(Leaf, OnlyLeavesRequiringGradHaveLeafState) {
  EXPECT_THROW(autograd::leaf(zeros({1})), StateError);
  Tensor x = zeros({1}).requires_grad_();
  EXPECT_THROW(autograd::leaf(mul(x, Scalar(2))), StateError);
}

}}  // namespace tandem
