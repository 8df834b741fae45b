// Modules whose parameters the ranks divide and gather unit by unit (Shard::kParameters). On CPUs and GPUs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/nn/checkpoint.h>
#include <tandem/nn/defer_guard.h>
#include <tandem/nn/init.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module_list.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tests/distributed/stack.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

using testing::error_text;
using testing::rank_devices;

TEST(ParameterUnits, AreTheChildrenOfModuleListsByDefault) {
  Stack model(2);
  EXPECT_EQ(model.units_of_parameters({}),
            (std::vector<std::string>{"", "", "blocks.0", "blocks.0", "blocks.0", "blocks.1", "blocks.1", "blocks.1"}));
  EXPECT_EQ(model.units_of_parameters({"ends", "blocks.1.fc"}),
            (std::vector<std::string>{"ends", "ends", "", "", "", "", "blocks.1.fc", "blocks.1.fc"}));
  EXPECT_ERROR(ValueError, model.units_of_parameters({"blocks"}),
               "DistributedDataParallel: unit 'blocks' is a list of modules, which is not called; name its modules");
  EXPECT_NE(error_text<ValueError>([&] { model.units_of_parameters({"block"}); }).find("has no module 'block'"),
            std::string::npos);
  struct Tied : nn::Module {
    nn::ModuleList<Stack>& stacks = add<nn::ModuleList<Stack>>("stacks");
    Tied() {
      for (int i = 0; i < 2; ++i) stacks.append(std::make_unique<Stack>(2));
      stacks[0].blocks[1].add_parameter("tied", stacks[0].ends.weight);
      stacks[0].blocks[1].add_parameter("far", stacks[1].ends.weight);
    }
  } tied;
  const std::vector<std::string> units = tied.units_of_parameters({});
  const std::vector<std::pair<std::string, Tensor>> named = tied.named_parameters();
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& [path, tensor] = named[i];
    const bool is_near = tensor.is_same(tied.stacks[0].ends.weight),
               is_far = tensor.is_same(tied.stacks[1].ends.weight);
    EXPECT_TRUE(!is_near || units[i] == "stacks.0") << path << " in " << units[i];
    EXPECT_TRUE(!is_far || units[i].empty()) << path << " in " << units[i];
  }
}

TEST(ParameterUnits, TrainAsAWholeModel) {
  struct Case {
    const char* name;
    std::function<Tensor(Ddp&, Context&, int)> loss;
    ReducerOptions options = kUnits;
  };
  const std::vector<Case> cases = {
      {"simple", simple_loss},
      {"kept after forward", simple_loss, {.shard = Shard::kParameters, .keep_after_forward = true}},
      {"other units",
       simple_loss,
       {.shard = Shard::kParameters, .units = {"ends", "blocks.0", "blocks.0.fc", "blocks.1"}}},
      {"unit used twice",
       [](Ddp& ddp, Context& context, int step) {
         ddp.module().order = {0, 1, 0, 2, 2};
         return simple_loss(ddp, context, step);
       }},
      {"other order in each step",
       [](Ddp& ddp, Context& context, int step) {
         ddp.module().order = step % 2 == 0 ? std::vector<int64_t>{2, 0, 1} : std::vector<int64_t>{0, 1, 2};
         return simple_loss(ddp, context, step);
       }},
      {"checkpoint in units",
       [](Ddp& ddp, Context& context, int step) {
         for (Block* block : ddp.module().blocks) block->checkpoints = true;
         return simple_loss(ddp, context, step);
       }},
      {"checkpoint around units",
       [](Ddp& ddp, Context& context, int step) {
         const auto model = [&ddp](const Tensor& x) { return ddp(x); };
         return nn::checkpoint(model, input_of(context, step)).square().mean();
       }},
      {"two forwards before backward",
       [](Ddp& ddp, Context& context, int step) {
         return add(simple_loss(ddp, context, step), simple_loss(ddp, context, step + 7));
       }},
      {"evaluation between forward and backward",
       [](Ddp& ddp, Context& context, int step) {
         const Tensor loss = simple_loss(ddp, context, step);
         const NoGradGuard no_grad;
         ddp(input_of(context, step));
         return loss;
       }},
      {"backward in forward",
       [](Ddp& ddp, Context& context, int step) {
         Tensor x = input_of(context, step).requires_grad_();
         const Tensor y = ddp(x).square().mean();
         const Tensor slope = tandem::grad({y}, {x})[0];
         return add(simple_loss(ddp, context, step), slope.square().sum());
       }},
  };
  for (const int world : worlds()) {
    run_threads(rank_devices(world), [&](Context& context) {
      for (const Case& how : cases) {
        const auto loss = [&](Ddp& ddp, int step) { return how.loss(ddp, context, step); };
        EXPECT_EQ(train(context, how.options, loss), train(context, {}, loss)) << how.name << ", " << world << " ranks";
      }
    });
  }
}

/// Waits for a GPU, and for the group to see the ends of collectives there, every 20 ms: then it records them and
/// releases their tensors.
void synchronize(Device device) {
  if (device.is_cpu()) return;
  cuda::synchronize(device);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

/// The collectives of parameters and gradients of a rank in one step, in their order, and their bytes.
std::vector<std::pair<std::string, int64_t>> collectives_of_step(Context& context, ReducerOptions options) {
  const auto model = make_stack(context);
  Ddp ddp(*model, context.group(), std::move(options));
  optim::SGD sgd(model->parameters(), kSgd);
  std::vector<std::pair<std::string, int64_t>> result;
  for (int step = 0; step < 3; ++step) {
    context.group()->barrier();
    if (context.rank() == 0 && step == 2) start_trace();
    context.group()->barrier();
    simple_loss(ddp, context, step).backward();
    sgd.step();
    synchronize(context.device());
    context.group()->barrier();
  }
  if (context.rank() != 0) return result;
  for (const TraceEvent& event : stop_trace()) {
    const bool is_unit = event.name.starts_with("parameters of ") || event.name.starts_with("gradients of ");
    if (event.category == "comm" && event.rank == 0 && is_unit) result.emplace_back(event.name, event.num_bytes);
  }
  return result;
}

TEST(ParameterUnits, GatherInTheOrderOfUseOneUnitAhead) {
  constexpr int kRanks = 2;
  // 36 weights, 6 biases and 6 scales, each padded to 64 bytes, and then to 128 bytes.
  constexpr int64_t kRootPiece = (48 + 16) * 4 / kRanks, kBlockPiece = (48 + 16 + 16 + 16) * 4 / kRanks;
  run_threads(rank_devices(kRanks), [&](Context& context) {
    const auto got = collectives_of_step(context, kUnits);
    const auto kept = collectives_of_step(context, {.shard = Shard::kParameters, .keep_after_forward = true});
    if (context.rank() != 0) return;
    std::vector<std::string> names, kept_names;
    for (const auto& [name, bytes] : got) {
      names.push_back(name);
      const int64_t piece = name.ends_with("root unit") ? kRootPiece : kBlockPiece;
      EXPECT_EQ(bytes, name.starts_with("parameters") ? kRanks * piece : piece) << name;
    }
    for (const auto& [name, bytes] : kept) kept_names.push_back(name);
    const std::vector<std::string> forward = {"parameters of the root unit", "parameters of unit 'blocks.0'",
                                              "parameters of unit 'blocks.1'", "parameters of unit 'blocks.2'"};
    std::vector<std::string> expected = forward, expected_kept = forward;
    // The last unit and the root remain; each other gather starts before the gradients of the unit before it are sent.
    for (const char* name :
         {"parameters of unit 'blocks.1'", "gradients of unit 'blocks.2'", "parameters of unit 'blocks.0'",
          "gradients of unit 'blocks.1'", "gradients of unit 'blocks.0'", "gradients of the root unit"}) {
      expected.push_back(name);
      if (std::string(name).starts_with("gradients")) expected_kept.push_back(name);
    }
    EXPECT_EQ(names, expected);
    EXPECT_EQ(kept_names, expected_kept);
  });
}

/// Trains two steps, from the state of an earlier training if it is given. Returns the states of all ranks, merged.
std::pair<State, std::vector<double>> continue_on(int world, Shard level, const State* start) {
  std::vector<State> states(static_cast<size_t>(world));
  std::vector<double> values;
  run_threads(rank_devices(world), [&](Context& context) {
    const auto model = make_stack(context);
    Ddp ddp(*model, context.group(), {.shard = level});
    optim::AdamW adam(model->parameters(), {.lr = 0.01});
    if (start != nullptr) {
      const nn::LoadReport report = model->load_state_dict(start->get<State>("model"));
      EXPECT_EQ(report.loaded_keys.size(), 11u);
      adam.load_state_dict(start->get<State>("optimizer"));
    }
    for (int step = 0; step < 2; ++step) {
      adam.zero_grad();
      ddp(input_of(context, 0)).square().mean().backward();
      adam.step();
    }
    State& own = states[static_cast<size_t>(context.rank())];
    own.set("model", copy_of(model->state_dict()));
    own.set("optimizer", copy_of(adam.state_dict()));
    const std::vector<double> all = values_of(ddp);
    if (context.rank() == 0) values = all;
  });
  return {merge_pieces(states[0], states), values};
}

TEST(ParameterUnitsState, LoadsAtEveryNumberOfRanksAndLevel) {
  for (const int saved_by : worlds()) {
    const State whole = continue_on(saved_by, Shard::kNone, nullptr).first;
    const State pieces = continue_on(saved_by, Shard::kParameters, nullptr).first;
    for (const int loaded_by : worlds()) {
      const std::vector<double> expected = continue_on(loaded_by, Shard::kNone, &whole).second;
      for (const Shard level : kAllLevels) {
        EXPECT_EQ(continue_on(loaded_by, level, &pieces).second, expected)
            << saved_by << " ranks in pieces to " << loaded_by << " with " << to_string(level);
      }
      EXPECT_EQ(continue_on(loaded_by, Shard::kParameters, &whole).second, expected)
          << saved_by << " whole to " << loaded_by;
    }
  }
}

TEST(DeferGuard, InitialValuesAreThoseOfAnOrdinaryModel) {
  for (const int world : worlds()) {
    run_threads(rank_devices(world), [](Context& context) {
      std::vector<std::vector<double>> results;
      for (const bool defers : {false, true}) {
        manual_seed(1);
        std::optional<DeferGuard> guard;
        if (defers) guard.emplace();
        Stack model(3);
        nn::init::orthogonal_(model.blocks[0].fc.weight);
        nn::init::trunc_normal_(model.blocks[1].fc.weight);
        nn::init::sparse_(model.ends.weight, 0.3);
        EXPECT_EQ(model.blocks[0].fc.weight.storage()->owner() != nullptr, defers);
        guard.reset();
        const Tensor drawn = empty({4});
        nn::init::uniform_(drawn);  // the generator is at the same position
        if (!context.device().is_cpu()) model.to(context.device());
        Ddp ddp(model, context.group(), {.shard = defers ? Shard::kParameters : Shard::kNone});
        results.push_back(values_of(ddp));
        for (const double value : drawn.to_vector<double>()) results.back().push_back(value);
      }
      EXPECT_EQ(results[1], results[0]);
    });
  }
}

TEST(DeferGuard, UnsetParametersAreFoundAtTheFirstUse) {
  struct Unset : nn::Layer {
    Tensor& table = add_parameter("table", ones({4, 4}));
    Tensor forward(const Tensor& input) override { return mul(input, table); }
  };
  const DeferGuard guard;
  Unset model;
  EXPECT_ERROR(StateError, model(ones({4, 4})),
               "DeferGuard: 'table' has no initial value; set it by a function of nn::init, or create the module "
               "without DeferGuard\n  in Unset");
  State state;
  state.set("table", full({4, 4}, 3));
  model.load_state_dict(state);
  EXPECT_EQ(model(ones({4, 4})).sum().item(), 48);
}

/// Bytes that a product takes for cuBLAS until it is queued.
double product_workspace(Device device) {
  if (device.is_cpu()) return 0;
  const Tensor a = ones({2, 2}, {kFloat32, device});
  reset_peak_memory(device);
  const Tensor b = matmul(a, a);
  return static_cast<double>(memory_stats(device).peak_allocated - memory_stats(device).allocated);
}

/// Peak bytes of the rank's device from construction to the third step, above those before.
int64_t peak_of(Context& context, const ReducerOptions& options, bool defers, int num_blocks, int64_t width,
                int64_t* constructed) {
  const Device device = context.device();
  const auto meet = [&] {
    if (!device.is_cpu()) cuda::synchronize(device);
    context.group()->barrier();
  };
  meet();
  const int64_t before = memory_stats(device).allocated;
  reset_peak_memory(device);
  meet();
  std::optional<DeferGuard> guard;
  if (defers) guard.emplace();
  Stack model(num_blocks, width);
  if (!device.is_cpu()) model.to(device);
  guard.reset();
  Ddp ddp(model, context.group(), options);
  optim::AdamW adam(model.parameters(), {.lr = 1e-3});
  meet();
  *constructed = memory_stats(device).peak_allocated - before;
  meet();
  const Tensor x = values({1, width}, 1).to(kFloat32).to(device);
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad();
    ddp(x).square().mean().backward();
    adam.step();
  }
  meet();
  const int64_t peak = memory_stats(device).peak_allocated - before;
  meet();
  return peak;
}

TEST(ParameterUnits, MemoryOfScopesAndLocalBackwardsIsReturned) {
  run_threads(rank_devices(2), [](Context& context) {
    Stack model(24, 64);
    model.to(context.device());
    Ddp ddp(model, context.group(), kUnits);
    optim::AdamW adam(model.parameters(), {.lr = 1e-3});
    const Tensor x = values({1, 64}, 1).to(kFloat32).to(context.device());
    const auto allocated = [&] {
      adam.zero_grad();
      synchronize(context.device());
      context.group()->barrier();
      const int64_t bytes = memory_stats(context.device()).allocated;
      context.group()->barrier();
      return bytes;
    };
    const auto step = [&] {
      ddp(x).square().mean().backward();
      adam.step();
    };
    step();
    step();
    const int64_t before = allocated();
    static_cast<void>(ddp.gathered());
    EXPECT_LE(allocated(), before);
    {
      const HookHandle local = ddp.no_sync();
      ddp(x).square().mean().backward();
    }
    step();
    EXPECT_LE(allocated(), before);
  });
}

TEST(ParameterUnits, MemoryFollowsTheFormula) {
  constexpr int kRanks = 4, kBlocks = 24;
  const int64_t width = testing::test_device().is_cpu() ? 510 : 254;  // fits a size class of the allocator
  run_threads(rank_devices(kRanks), [&](Context& context) {
    const double sharing = context.device().is_cpu() ? kRanks : 1;  // ranks whose memory is counted together
    const double layer = sharing * static_cast<double>((width * width + 2 * width) * 4), all = (kBlocks + 1) * layer;
    int64_t constructed = 0;
    const auto peak = static_cast<double>(peak_of(context, kUnits, true, kBlocks, width, &constructed));
    // Parameters, gradients and two moments in pieces; two whole units, two buffers of gradients, and the root with
    // its gradients.
    const double expected = 4 * all / kRanks + (2 + 2 + 2) * layer;
    // The two gradients of the tied layer are tensors of their own until they are added.
    EXPECT_NEAR(peak - product_workspace(context.device()), expected + 2 * layer, 0.05 * expected);
    const MemoryPlan plan = memory_plan(Stack(kBlocks, width), kRanks, kUnits);
    EXPECT_NEAR(sharing * static_cast<double>(plan.total()), expected, 0.01 * expected) << plan;
    const MemoryPlan kept =
        memory_plan(Stack(kBlocks, width), kRanks, {.shard = Shard::kParameters, .keep_after_forward = true});
    EXPECT_NEAR(sharing * static_cast<double>(kept.units), (kBlocks + 2 + 2) * layer, 0.01 * kBlocks * layer) << kept;
    // Pieces, and for one unit its bucket, its parameters and random numbers.
    EXPECT_LE(static_cast<double>(constructed), 1.05 * (all / kRanks + 3 * layer));
  });
}

}}  // namespace tandem::distributed
