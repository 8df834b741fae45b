// Wrong use of parameters in units, and use that differs among ranks, operations and steps. On CPUs and GPUs.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/autograd/checkpoint.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/nn/checkpoint.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tests/distributed/stack.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

using testing::error_text;
using testing::rank_devices;

TEST(ParameterUnits, ReadingElsewhereNamesParameterAndUnit) {
  run_threads(rank_devices(2), [](Context& context) {
    const auto model = make_stack(context);
    const std::vector<double> initial = model->blocks[1].fc.weight.to_vector<double>();
    const Tensor weight = model->blocks[1].fc.weight;  // a copy of the handle
    Ddp ddp(*model, context.group(), kUnits);
    const std::string text =
        "'blocks.1.fc.weight' of unit 'blocks.1' is divided among the ranks: it is whole only while the unit runs; "
        "read it in the operator() of that module, or in a scope of gathered()";
    const auto check = [&] {
      EXPECT_ERROR(StateError, weight.data_ptr(), text);
      EXPECT_ERROR(StateError, weight.to_vector<double>(), text);
      EXPECT_ERROR(StateError, weight.clone(), text);
      EXPECT_ERROR(StateError, to_string(weight), text);
      EXPECT_ERROR(StateError, weight.detach().t().contiguous(), text);
      EXPECT_NE(error_text<StateError>([&] { model->ends.bias.data_ptr(); }).find("'ends.bias' of the root unit"),
                std::string::npos);
      EXPECT_EQ(weight.shape(), (Shape{kWidth, kWidth}));
    };
    check();
    {
      const HookHandle whole = ddp.gathered({"blocks.1"});
      EXPECT_EQ(weight.to_vector<double>(), initial);
    }
    check();
    EXPECT_NE(error_text<ValueError>([&] { static_cast<void>(ddp.gathered({"blocks.7"})); }).find("'blocks.7'"),
              std::string::npos);
    simple_loss(ddp, context, 0).backward();
    check();
    optim::SGD sgd(model->parameters(), kSgd);
    {
      const HookHandle whole = ddp.gathered({"blocks.1"});
      EXPECT_NE(error_text<StateError>([&] { sgd.step(); }).find("the parameters of unit 'blocks.1' are whole"),
                std::string::npos);
    }
    {
      const NoGradGuard no_grad;
      ddp(input_of(context, 0));
      check();
    }
    const auto state = model->state_dict();
    EXPECT_TRUE(is_pieces(state.get<State>("blocks.1.fc.weight")));
    const HookHandle whole = ddp.gathered();
    EXPECT_EQ(model->state_dict().get<Tensor>("blocks.1.fc.weight").shape(), weight.shape());
  });
}

TEST(ParameterUnits, ChangesInAScopeAreKept) {
  run_threads(rank_devices(2), [](Context& context) {
    const auto model = make_stack(context);
    Ddp ddp(*model, context.group(), kUnits);
    {
      const HookHandle whole = ddp.gathered();
      const NoGradGuard no_grad;
      for (const Tensor& p : model->parameters()) p.fill_(0.5);
    }
    for (const double value : values_of(ddp)) EXPECT_EQ(value, 0.5);
  });
}

TEST(ParameterUnits, ChangesThatDifferAmongRanksAreFoundByTheNextBackward) {
  for (const bool all_write : {false, true}) {
    run_threads(rank_devices(2), [&](Context& context) {
      const auto model = make_stack(context);
      Ddp ddp(*model, context.group(), kUnits);
      simple_loss(ddp, context, 0).backward();
      if (context.rank() == 0 || all_write) {
        HookHandle whole = ddp.gathered({"blocks.1"});
        const NoGradGuard no_grad;
        model->blocks[1].scale.fill_(0.5 + context.rank());
        whole.remove();
      } else {
        const HookHandle whole = ddp.gathered({"blocks.1"});
      }
      for (int attempt = 0; attempt < 2; ++attempt) {
        EXPECT_ERROR(StateError, simple_loss(ddp, context, 1).backward(),
                     "DistributedDataParallel: these units were given other values than on rank 0\n  unit 'blocks.1' "
                     "on rank 1\n  a rank keeps its pieces only, so all ranks must make the same changes in a scope of "
                     "gathered(); load a state into a new model");
      }
    });
  }
}

TEST(ParameterUnits, ARefusedStepOrLoadChangesNothing) {
  run_threads(rank_devices(2), [](Context& context) {
    std::vector<std::vector<double>> results;
    for (const bool is_refused : {false, true}) {
      const auto model = make_stack(context);
      State state;
      for (const auto& [path, tensor] : model->named_parameters()) state.set(path, full_like(tensor, 3));
      Ddp ddp(*model, context.group(), kUnits);
      optim::AdamW adam(model->parameters(), {.lr = 0.01});
      for (int step = 0; step < 3; ++step) {
        adam.zero_grad();
        simple_loss(ddp, context, step).backward();
        if (is_refused) {
          const HookHandle whole = ddp.gathered({"blocks.1"});
          const std::string text = "the parameters of unit 'blocks.1' are whole";
          EXPECT_NE(error_text<StateError>([&] { adam.step(); }).find(text), std::string::npos);
          EXPECT_NE(error_text<StateError>([&] { model->load_state_dict(state); }).find(text), std::string::npos);
        }
        adam.step();
      }
      results.push_back(values_of(ddp));
    }
    EXPECT_EQ(results[1], results[0]);
  });
}

TEST(ParameterUnits, RanksMayUseOtherParametersOfTheSameUnits) {
  run_threads(rank_devices(3), [](Context& context) {
    const auto loss = [&](Ddp& ddp, int step) {
      for (const int64_t i : {0, 1}) ddp.module().blocks[i].scales = (i + step) % 3 != context.rank();
      return simple_loss(ddp, context, step);
    };
    const auto allow = UnusedParameters::kAllow;
    EXPECT_EQ(train(context, {.unused = allow, .shard = Shard::kParameters}, loss),
              train(context, {.unused = allow}, loss));
  });
}

/// An operation that reads parameters of two units, in backward and in a function that runs again.
TEST(ParameterUnits, MayBeUsedTogetherByOneOperation) {
  struct Inner : nn::Layer {
    Tensor& scale = add_parameter("scale", full({kWidth}, 0.5));
    Tensor outer, front;  // of other units
    bool checkpoints = false;
    Tensor forward(const Tensor& input) override {
      const auto f = [this](const Tensor& x) {
        const void* const memory = outer.data_ptr();
        for (int i = 0; autograd::is_recomputing() && i < 8; ++i) {  // it is not given to another unit meanwhile
          EXPECT_NE(scale.data_ptr(), memory);
          EXPECT_NE(front.data_ptr(), memory);
        }
        return mul(tanh(x), div(outer, scale));
      };
      return checkpoints ? nn::checkpoint(f, input) : f(input);
    }
  };
  struct Front : nn::Layer {
    Tensor& scale = add_parameter("scale", full({kWidth}, 2));
    Tensor forward(const Tensor& input) override { return mul(input, scale); }
  };
  struct Outer : nn::Layer {
    Tensor& scale = add_parameter("scale", full({kWidth}, 1.5));
    Inner& inner = add<Inner>("inner");
    Tensor forward(const Tensor& input) override {
      inner.outer = scale;
      return inner(input);
    }
  };
  struct Model : nn::Layer {
    Outer& outer = add<Outer>("outer");
    Front& front = add<Front>("front");
    Tensor forward(const Tensor& input) override { return outer(front(input)); }
  };
  run_threads(rank_devices(2), [](Context& context) {
    for (const bool checkpoints : {false, true}) {
      std::vector<std::vector<double>> results;
      for (const Shard shard : {Shard::kNone, Shard::kParameters}) {
        manual_seed(1);
        Model model;
        model.to(context.device());
        model.outer.inner.checkpoints = checkpoints;
        ReducerOptions options = {.shard = shard};
        if (shard == Shard::kParameters) options.units = {"outer", "outer.inner", "front"};
        DistributedDataParallel ddp(model, context.group(), options);
        model.outer.inner.front = model.front.scale;
        optim::SGD sgd(model.parameters(), kSgd);
        for (int step = 0; step < 4; ++step) {
          sgd.zero_grad();
          ddp(input_of(context, step)).square().mean().backward();
          sgd.step();
        }
        const HookHandle whole = ddp.gathered();
        std::vector<double>& result = results.emplace_back();
        for (const Tensor& p : model.parameters()) {
          for (const float value : p.detach().to_vector<float>()) result.push_back(value);
        }
      }
      EXPECT_EQ(results[1], results[0]) << "checkpoint " << checkpoints;
    }
  });
}

TEST(ParameterUnits, NextStepIsRightAfterExceptions) {
  run_threads(rank_devices(2), [](Context& context) {
    const auto loss = [&](Ddp& ddp, int step) {
      Stack& model = ddp.module();
      if (step % 2 == 1) {
        model.blocks[1].fails = true;
        EXPECT_THROW(simple_loss(ddp, context, step), ValueError);
        model.blocks[1].fails = false;
      }
      const Tensor x = input_of(context, step), y = ddp(x).square();
      if (step % 2 == 0 && step > 0) {
        const HookHandle hook = y.register_hook([](const Tensor&) -> Tensor { throw ValueError("thrown by a hook"); });
        EXPECT_THROW(y.mean().backward(), ValueError);
        const auto no_sync = ddp.no_sync();
        bool throws = true;
        const HookHandle inside =
            model.blocks[0].register_full_backward_hook([&](nn::Layer&, const Tensor&, const Tensor&) {
              if (throws) throw ValueError("thrown by a hook");
            });
        EXPECT_THROW(simple_loss(ddp, context, step).backward(), ValueError);
        throws = false;
        for (const Tensor& p : model.parameters()) p.zero_grad();
      }
      return simple_loss(ddp, context, step);
    };
    EXPECT_EQ(train(context, kUnits, loss), train(context, {}, loss));
  });
}

TEST(ParameterUnits, RanksThatRunOtherUnitsGetAnErrorThatNamesThem) {
  std::vector<std::string> texts(2);
  EXPECT_THROW(run_threads(rank_devices(2),
                           [&](Context& context) {
                             const auto model = make_stack(context);
                             Ddp ddp(*model, context.group(), kUnits);
                             if (context.rank() == 1) model->order = {0, 2, 1};
                             try {
                               ddp(input_of(context, 0));
                             } catch (const Error& error) {
                               texts[static_cast<size_t>(context.rank())] = error.what();
                               throw;
                             }
                           }),
               Error);
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("unit 'blocks.1'"), std::string::npos) << text;
    EXPECT_NE(text.find("unit 'blocks.2'"), std::string::npos) << text;
  }
}

}}  // namespace tandem::distributed
