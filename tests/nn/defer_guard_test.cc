// Models that are created under a DeferGuard, on one rank.
#include <tandem/nn/defer_guard.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

template <class M, class... Args>
M created(bool defers, Args... args) {
  td::manual_seed(1);
  std::optional<td::DeferGuard> guard;
  if (defers) guard.emplace();
  return M(args...);
}

bool has_memory(const Tensor& tensor) { return tensor.storage()->owner() == nullptr; }

TEST(DeferGuard, InitialValuesSurviveARefusedLoad) {
  const std::vector<float> expected = created<nn::Linear>(false, 3, 2).weight.to_vector<float>();
  td::State pieces;
  pieces.set("weight", td::make_pieces({2, 3}, 0, td::full({4}, 7)));  // of six elements
  for (const td::State& refused : {td::State(), pieces}) {
    auto model = created<nn::Linear>(true, 3, 2);
    EXPECT_THROW(model.load_state_dict(refused), td::StateError);
    EXPECT_FALSE(has_memory(model.weight));
    EXPECT_EQ(model.weight.to_vector<float>(), expected);
  }
  auto model = created<nn::Linear>(true, 3, 2);
  model.load_state_dict(model.state_dict());
  EXPECT_EQ(model.weight.to_vector<float>(), expected);
  auto loaded = created<nn::Linear>(true, 3, 2, nn::LinearOptions{.bias = false});
  pieces.set("weight", td::make_pieces({2, 3}, 0, td::full({6}, 7)));
  loaded.load_state_dict(pieces);
  EXPECT_EQ(loaded.weight.to_vector<float>(), std::vector<float>(6, 7));
}

TEST(DeferGuard, InitializationIsRepeatedAfterOutOfMemory) {
  constexpr int64_t kWidth = 512, kBytes = kWidth * kWidth * 4;
  const Tensor expected = created<nn::Linear>(false, kWidth, kWidth).weight;
  const auto model = created<nn::Linear>(true, kWidth, kWidth);
  td::empty_cache(td::Device());
  td::set_memory_limit(td::Device(), td::memory_stats(td::Device()).allocated + kBytes + kBytes / 2);
  EXPECT_THROW(model.weight.data_ptr(), td::OutOfMemory);  // of the random numbers
  EXPECT_FALSE(has_memory(model.weight));
  td::set_memory_limit(td::Device(), 0);
  EXPECT_EQ(model.weight.to_vector<float>(), expected.to_vector<float>());
}

TEST(DeferGuard, TiedParametersKeepTheirRecordedInitialization) {
  struct Tied : nn::Module {
    nn::Embedding& table = add<nn::Embedding>("table", 5, 3);
    nn::Module& head = add<nn::Module>("head");
    Tensor& weight = head.add_parameter("weight", table.weight);
  };
  const std::vector<float> expected = created<nn::Embedding>(false, 5, 3).weight.to_vector<float>();
  td::manual_seed(1);
  const td::DeferGuard guard;
  const Tied model;
  EXPECT_FALSE(has_memory(model.weight));
  EXPECT_EQ(model.weight.to_vector<float>(), expected);
}

TEST(DeferGuard, ExistingTensorsKeepTheirValues) {
  nn::Embedding teacher(5, 3);
  const std::vector<float> expected = teacher.weight.to_vector<float>();
  const Tensor values = td::full({2, 3}, 7);
  const td::DeferGuard guard;
  nn::Module student, heir;
  EXPECT_EQ(student.add_parameter("table", teacher.weight).to_vector<float>(), expected);
  EXPECT_EQ(student.add_parameter("values", values).to_vector<float>(), std::vector<float>(6, 7));
  nn::Linear source = created<nn::Linear>(false, 3, 2);
  const std::vector<float> moved = source.weight.to_vector<float>();
  EXPECT_EQ(heir.add_parameter("weight", std::move(source.weight)).to_vector<float>(), moved);
}

TEST(DeferGuard, ConversionsAreDeferred) {
  td::set_cpu_device_count(2);
  const td::Device other("cpu:1");
  std::vector<std::vector<double>> results;
  for (const bool defers : {false, true}) {
    auto model = created<nn::Linear>(defers, 64, 64);
    const int64_t before = td::memory_stats(other).allocated;
    model.to(td::kBFloat16);
    model.to(other, td::kFloat64);
    EXPECT_EQ(has_memory(model.weight), !defers);
    EXPECT_EQ(td::memory_stats(other).allocated - before < model.weight.num_bytes(), defers);
    EXPECT_EQ(model.weight.device(), other);
    EXPECT_EQ(model.weight.dtype(), td::kFloat64);
    results.push_back(model.weight.to_vector<double>());
  }
  EXPECT_EQ(results[1], results[0]);
}

}  // namespace
