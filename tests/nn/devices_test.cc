// Layers whose tensors and input are on different devices, and layers on a device other than the first.
#include <tandem/tests/nn/nn.h>

namespace nn = tandem::nn;
namespace td = tandem;
using td::Tensor;
using td::testing::error_text;

namespace {

/// A layer with the path "encoder.layer".
struct Case {
  std::string op;    ///< operation that reports the error; "" for a layer without tensors
  std::string type;  ///< type and path of the module in which the operation runs
  Tensor input;
  std::function<nn::Layer&(nn::Module&)> add;
};

template <class L, class... Args>
std::function<nn::Layer&(nn::Module&)> add(Args... args) {
  return [=](nn::Module& parent) -> nn::Layer& { return parent.add<L>("layer", args...); };
}

std::vector<Case> cases() {
  const Tensor rows = td::ones({4, 6}), image = td::ones({2, 3, 8, 8}), tokens = td::zeros({2, 5}, {td::kInt64});
  const Tensor words = td::ones({2, 5, 6}), signal = td::ones({2, 3, 9});
  return {
      {"linear", "Linear 'encoder.layer'", rows, add<nn::Linear>(6, 2)},
      {"linear_relu", "Linear 'encoder.layer'", rows,
       add<nn::Linear>(6, 2, nn::LinearOptions{.activation = nn::Activation::kRelu})},
      {"linear_gelu", "Linear 'encoder.layer'", rows,
       add<nn::Linear>(6, 2, nn::LinearOptions{.activation = nn::Activation::kGeluTanh})},
      {"conv2d", "Conv2d 'encoder.layer'", image, add<nn::Conv2d>(3, 2, 3)},
      {"conv2d_relu", "Conv2d 'encoder.layer'", image,
       add<nn::Conv2d>(3, 2, 3, nn::Conv2dOptions{.activation = nn::Activation::kRelu})},
      {"conv1d", "Conv1d 'encoder.layer'", td::ones({2, 3, 8}), add<nn::Conv1d>(3, 2, 3)},
      {"conv_transpose1d", "ConvTranspose1d 'encoder.layer'", td::ones({2, 3, 8}), add<nn::ConvTranspose1d>(3, 2, 3)},
      {"conv_transpose2d", "ConvTranspose2d 'encoder.layer'", image, add<nn::ConvTranspose2d>(3, 2, 3)},
      {"batch_norm", "BatchNorm2d 'encoder.layer'", image, add<nn::BatchNorm2d>(3)},
      {"batch_norm_relu", "BatchNorm2d 'encoder.layer'", image,
       add<nn::BatchNorm2d>(3, nn::BatchNormOptions{.activation = nn::Activation::kRelu})},
      {"batch_norm", "BatchNorm1d 'encoder.layer'", rows, add<nn::BatchNorm1d>(6)},
      {"instance_norm", "InstanceNorm2d 'encoder.layer'", image,
       add<nn::InstanceNorm2d>(3, nn::InstanceNormOptions{.affine = true, .track_running_stats = true})},
      {"group_norm", "GroupNorm 'encoder.layer'", image, add<nn::GroupNorm>(3, 3)},
      {"layer_norm", "LayerNorm 'encoder.layer'", rows, add<nn::LayerNorm>(6)},
      {"rms_norm", "RMSNorm 'encoder.layer'", rows, add<nn::RMSNorm>(6)},
      {"embedding", "Embedding 'encoder.layer'", tokens, add<nn::Embedding>(7, 6)},
      {"linear", "MultiheadAttention 'encoder.layer'", words, add<nn::MultiheadAttention>(6, 2)},
      {"prelu", "PReLU 'encoder.layer'", rows, add<nn::PReLU>()},
      {"linear", "MultiheadAttention 'encoder.layer.self_attn'", words, add<nn::TransformerEncoderLayer>(6, 2)},
      {"", "", rows, add<nn::Dropout>()},
      {"", "", rows, add<nn::Dropout1d>()},
      {"", "", image, add<nn::Dropout2d>()},
      {"", "", rows, add<nn::Softmin>(1)},
      {"", "", rows, add<nn::GELU>()},
      {"", "", rows, add<nn::Flatten>()},
      {"", "", image, add<nn::MaxPool2d>(2)},
      {"", "", image, add<nn::AvgPool2d>(2)},
      {"", "", image, add<nn::AdaptiveAvgPool2d>(2)},
      {"", "", signal, add<nn::MaxPool1d>(2)},
      {"", "", signal, add<nn::AvgPool1d>(2)},
      {"", "", signal, add<nn::AdaptiveAvgPool1d>(2)},
      {"", "", signal, add<nn::AdaptiveMaxPool1d>(2)},
      {"", "", image, add<nn::AdaptiveMaxPool2d>(3)},
      {"", "", image, add<nn::ZeroPad2d>(1)},
      {"", "", image, add<nn::ReflectionPad2d>(1)},
      {"", "", image, add<nn::Upsample>(td::InterpolateOptions{.scale_factor = {2}})},
      {"", "", image, add<nn::UpsamplingBilinear2d>(td::InterpolateOptions{.size = {5}})},
      {"", "", image, add<nn::PixelUnshuffle>(2)},
  };
}

class LayerDevices : public ::testing::Test {
 protected:
  void SetUp() override { td::set_cpu_device_count(std::max(2, td::cpu_device_count())); }
  const td::Device there_{"cpu:1"};
};

TEST_F(LayerDevices, ErrorNamesLayerOnWrongDevice) {
  for (const Case& c : cases()) {
    if (c.op.empty()) continue;
    SCOPED_TRACE(c.op);
    nn::Module root;
    nn::Layer& layer = c.add(root.add<nn::Module>("encoder"));
    layer.to(there_);
    const std::string text = error_text<td::DeviceError>([&] { layer(c.input); });
    EXPECT_TRUE(text.starts_with(c.op + ": operands are on different devices\n")) << text;
    EXPECT_TRUE(text.ends_with("\n  in " + c.type)) << text;
    root.to(td::Device());
    EXPECT_EQ(layer(c.input).device(), td::Device());
  }
}

TEST_F(LayerDevices, PartlyMovedModelErrorsListAllTensors) {
  struct Net : nn::Module {
    nn::Linear& fc1 = add<nn::Linear>("fc1", 6, 4);
    nn::BatchNorm2d& bn = add<nn::BatchNorm2d>("bn", 3);
    nn::MultiheadAttention& attn = add<nn::MultiheadAttention>("attn", 6, 2);
  } net;
  net.fc1.to(there_);
  EXPECT_ERROR(td::DeviceError, net.fc1(td::ones({5, 6})),
               "linear: operands are on different devices\n"
               "  x       cpu    float32 [5, 6]  <- differs\n"
               "  weight  cpu:1  float32 [4, 6]\n"
               "  bias    cpu:1  float32 [4]\n"
               "  move it with x.to(cpu:1), or move the module with model.to(cpu:1)\n"
               "  in Linear 'fc1'");
  // Only the running mean is on another device, which to() never causes.
  net.bn.running_mean = net.bn.running_mean.to(there_);
  const Tensor image = td::ones({2, 3, 1, 2});
  EXPECT_ERROR(td::DeviceError, net.bn(image),
               "batch_norm: operands are on different devices\n"
               "  input         cpu    float32 [2, 3, 1, 2]\n"
               "  running_mean  cpu:1  float32 [3]           <- differs\n"
               "  running_var   cpu    float32 [3]\n"
               "  weight        cpu    float32 [3]\n"
               "  bias          cpu    float32 [3]\n"
               "  move it with running_mean.to(cpu), or move the module with model.to(cpu)\n"
               "  in BatchNorm2d 'bn'");
  EXPECT_EQ(net.bn.num_batches_tracked.item<int64_t>(), 0);
  // A submodule of a layer, and a mask.
  net.attn.out_proj.to(there_);
  EXPECT_ERROR(td::DeviceError, net.attn(td::ones({2, 5, 6})),
               "linear: operands are on different devices\n"
               "  x       cpu    float32 [2, 5, 6]  <- differs\n"
               "  weight  cpu:1  float32 [6, 6]\n"
               "  bias    cpu:1  float32 [6]\n"
               "  move it with x.to(cpu:1), or move the module with model.to(cpu:1)\n"
               "  in Linear 'attn.out_proj'");
  net.attn.to(there_);
  EXPECT_ERROR(td::DeviceError, net.attn(td::ones({2, 5, 6}, {td::kFloat32, there_}), td::zeros({5, 5})),
               "qkv_attention: operands are on different devices\n"
               "  qkv        cpu:1  float32 [2, 5, 18]\n"
               "  attn_mask  cpu    float32 [5, 5]      <- differs\n"
               "  move it with attn_mask.to(cpu:1), or move the module with model.to(cpu:1)\n"
               "  in MultiheadAttention 'attn'");
}

TEST_F(LayerDevices, MovedLayerAllocatesOnlyOnItsDevice) {
  const td::Device here;
  for (const Case& c : cases()) {
    nn::Module root;
    nn::Layer& layer = c.add(root);
    SCOPED_TRACE(layer.type_name());
    root.to(there_);
    Tensor input = c.input.to(there_);
    if (input.dtype() == td::kFloat32) input.requires_grad_();
    td::reset_peak_memory(here);
    const int64_t before = td::memory_stats(here).allocated;
    {
      const Tensor out = layer(input);
      EXPECT_EQ(out.device(), there_);
      out.backward(td::ones_like(out));
      for (const Tensor& parameter : root.parameters()) EXPECT_EQ(parameter.grad().device(), there_);
    }
    EXPECT_EQ(td::memory_stats(here).allocated, before);
    EXPECT_EQ(td::memory_stats(here).peak_allocated, before);
  }
}

}  // namespace
