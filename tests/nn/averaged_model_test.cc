#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

struct Net : nn::Layer {
  explicit Net(int64_t n) : fc(add<nn::Linear>("fc", n, 2)) {}
  td::Tensor forward(const td::Tensor& x) override { return fc(x); }
  nn::Linear& fc;
  nn::BatchNorm2d& bn = add<nn::BatchNorm2d>("bn", 2);
};

/// Sets all values of the bias, the running mean and the number of batches.
void set(Net& net, double value) {
  net.fc.bias.detach().fill_(value);
  net.bn.running_mean.fill_(value);
  net.bn.num_batches_tracked.fill_(static_cast<int64_t>(value));
}

float bias(const Net& net) { return net.fc.bias.to_vector<float>()[1]; }
float mean(const Net& net) { return net.bn.running_mean.to_vector<float>()[1]; }

TEST(AveragedModel, BeginsAsACopyOnTheSameDevice) {
  td::set_cpu_device_count(2);
  Net model(3);
  set(model, 5);
  model.to(td::Device("cpu:1"));
  nn::AveragedModel<Net> averaged(model, {}, 3);
  EXPECT_EQ(averaged.module.fc.weight.to_vector<float>(), model.fc.weight.to_vector<float>());
  EXPECT_NE(averaged.module.fc.weight.data_ptr(), model.fc.weight.data_ptr());
  EXPECT_EQ(mean(averaged.module), 5);
  EXPECT_EQ(averaged.module.fc.weight.device(), td::Device("cpu:1"));
  EXPECT_EQ(averaged.n_averaged.item<int64_t>(), 0);
  const td::Tensor x = td::ones({1, 3}, {td::kFloat32, td::Device("cpu:1")});
  EXPECT_EQ(averaged(x).to_vector<float>(), model(x).to_vector<float>());
}

TEST(AveragedModel, ConvertedAndFrozenModelsAreCopiedWithoutRandomNumbers) {
  td::manual_seed(1);
  Net model(3);
  model.to(td::kBFloat16);
  model.fc.requires_grad_(false);
  model.bn.eval();
  const auto before = td::default_generator().state_dict().get<int64_t>("offset");
  nn::AveragedModel<Net> averaged(model, {.avg_fn = nn::get_ema_avg_fn(0.5)}, 3);
  EXPECT_EQ(td::default_generator().state_dict().get<int64_t>("offset"), before);
  EXPECT_EQ(averaged.module.fc.weight.dtype(), td::kBFloat16);
  EXPECT_FALSE(averaged.module.fc.weight.requires_grad());
  EXPECT_FALSE(averaged.module.bn.is_training());
  set(model, 1);
  averaged.update_parameters(model);
  set(model, 3);
  averaged.update_parameters(model);
  EXPECT_EQ(bias(averaged.module), 2);
}

TEST(AveragedModel, SwaIsTheMeanOfAllUpdates) {
  Net model(3);
  set(model, 100);
  nn::AveragedModel<Net> averaged(model, {}, 3);
  for (const double value : {1.0, 2.0, 6.0}) {
    set(model, value);
    averaged.update_parameters(model);
  }
  EXPECT_FLOAT_EQ(bias(averaged.module), 3);
  EXPECT_EQ(mean(averaged.module), 6);  // a buffer: copied
  EXPECT_EQ(averaged.n_averaged.item<int64_t>(), 3);
  EXPECT_EQ(bias(model), 6);
}

TEST(AveragedModel, EmaDecaysFromTheFirstUpdate) {
  Net model(3);
  nn::AveragedModel<Net> averaged(model, {.avg_fn = nn::get_ema_avg_fn(0.75), .use_buffers = true}, 3);
  for (const double value : {8.0, 16.0, 0.0}) {
    set(model, value);
    averaged.update_parameters(model);
  }
  EXPECT_FLOAT_EQ(bias(averaged.module), 7.5);  // 0.75 (0.75 8 + 0.25 16)
  EXPECT_FLOAT_EQ(mean(averaged.module), 7.5);
  EXPECT_EQ(averaged.module.bn.num_batches_tracked.item<int64_t>(), 0);  // not floating-point: copied
}

TEST(AveragedModel, OwnFunctionGetsTheNumberOfUpdates) {
  Net model(3);
  std::vector<int64_t> counts;
  nn::AveragedModel<Net> averaged(model,
                                  {.avg_fn =
                                       [&](const td::Tensor& own, const td::Tensor& current, int64_t n) {
                                         counts.push_back(n);
                                         return td::maximum(own, current);
                                       }},
                                  3);
  for (const double value : {3.0, 4.0, 2.0}) {
    set(model, value);
    averaged.update_parameters(model);
  }
  EXPECT_EQ(bias(averaged.module), 4);
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 1, 1, 1, 2, 2, 2, 2}));  // four parameters
}

TEST(AveragedModel, StateHasPyTorchsKeysAndContinues) {
  Net model(3);
  nn::AveragedModel<Net> averaged(model, {}, 3), restored(model, {}, 3);
  for (const double value : {1.0, 2.0}) {
    set(model, value);
    averaged.update_parameters(model);
  }
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : averaged.state_dict().tensors()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"n_averaged", "module.fc.weight", "module.fc.bias", "module.bn.weight",
                                            "module.bn.bias", "module.bn.running_mean", "module.bn.running_var",
                                            "module.bn.num_batches_tracked"}));
  restored.load_state_dict(averaged.state_dict());
  set(model, 6);
  restored.update_parameters(model);
  EXPECT_FLOAT_EQ(bias(restored.module), 3);
}

TEST(AveragedModel, OtherModelsAreRejected) {
  Net model(3), other(4);
  EXPECT_ERROR(td::ValueError, nn::AveragedModel<Net>(model, {}, 4),
               "AveragedModel: the model has 'fc.weight' float32 [2, 3], the averaged model 'fc.weight' float32 [2, "
               "4]; construct both with the same arguments");
  nn::AveragedModel<Net> averaged(model, {}, 3);
  EXPECT_ERROR(td::ValueError, averaged.update_parameters(other.fc),
               "AveragedModel: the model has 0 buffers, the averaged model 3; construct both with the same arguments");
  EXPECT_ERROR(td::ValueError, nn::get_ema_avg_fn(1.5), "get_ema_avg_fn: decay is 1.5, expected 0 <= decay <= 1");
  EXPECT_EQ(averaged.n_averaged.item<int64_t>(), 0);
}

TEST(UpdateBn, StatisticsAreTheMeansOverAllBatches) {
  nn::BatchNorm2d bn(1, {.momentum = 0.25});
  bn.eval();
  std::vector<td::Tensor> batches;
  for (const float value : {1.0f, 2.0f, 6.0f})
    batches.push_back(td::from_vector<float>({value - 1, value + 1}, {2, 1, 1, 1}));
  nn::update_bn(batches, bn);
  EXPECT_FLOAT_EQ(bn.running_mean.item<float>(), 3);
  EXPECT_FLOAT_EQ(bn.running_var.item<float>(), 2);
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 3);
  EXPECT_EQ(bn.momentum(), 0.25);
  EXPECT_FALSE(bn.is_training());
}

TEST(UpdateBn, RestoresTheModeOfEachModuleAndCountsEachCall) {
  struct Twice : nn::Layer {
    nn::BatchNorm2d& bn = add<nn::BatchNorm2d>("bn", 1);
    nn::BatchNorm2d& frozen = add<nn::BatchNorm2d>("frozen", 1);
    nn::BatchNorm1d& stateless = add<nn::BatchNorm1d>("stateless", 1, {.track_running_stats = false});
    td::Tensor forward(const td::Tensor& x) override { return bn(x) + bn(td::mul(x, 3)); }
  } net;
  net.frozen.eval();
  const std::vector<td::Tensor> batches = {td::ones({2, 1, 1, 1}), td::full({2, 1, 1, 1}, 2)};
  nn::update_bn(batches, net);
  EXPECT_TRUE(net.is_training());
  EXPECT_TRUE(net.bn.is_training());
  EXPECT_FALSE(net.frozen.is_training());
  EXPECT_FLOAT_EQ(net.bn.running_mean.item<float>(), 3);  // of 1, 3, 2 and 6
}

}  // namespace
