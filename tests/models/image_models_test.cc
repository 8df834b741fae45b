// Models of images: names, shapes and results are compared with torchvision, or with the same models in PyTorch.
#include <tandem/models/dcgan.h>
#include <tandem/models/lenet.h>
#include <tandem/models/mlp.h>
#include <tandem/models/mobilenet.h>
#include <tandem/models/resnet.h>
#include <tandem/models/unet.h>
#include <tandem/models/vision_transformer.h>
#include <tandem/nn/init.h>
#include <tandem/tests/models/reference.h>
#include <tandem/tests/nn/drawn.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

constexpr double kTolerance = 1e-10;

/// Expects torchvision's names, shapes and logits of images of 64x64.
template <class Model, class... Options>
void expect_torchvision(const std::string& name, const Options&... options) {
  const nn::init::SkipGuard skip;
  Model model(options...);
  EXPECT_EQ(state_text(model.state_dict()), recorded_text(name + "/state"));
  draw_module(model);
  const NoGradGuard no_grad;
  const Tensor expected = recorded(name + "/logits");
  expect_close(model(drawn({2, 3, 64, 64}, 1)).narrow(1, 0, expected.size(1)), expected, kTolerance);
}

TEST(ResNet, Resnet18EqualsTorchvision) { expect_torchvision<models::ResNet18>("resnet18"); }

TEST(ResNet, Resnet34EqualsTorchvision) { expect_torchvision<models::ResNet34>("resnet34"); }

TEST(ResNet, Resnet50EqualsTorchvision) { expect_torchvision<models::ResNet50>("resnet50"); }

TEST(MobileNetV2, EqualsTorchvision) { expect_torchvision<models::MobileNetV2>("mobilenet_v2"); }

TEST(MobileNetV2, WidthMultiplierEqualsTorchvision) {
  expect_torchvision<models::MobileNetV2>("mobilenet_v2_035",
                                          models::MobileNetV2Options{.num_classes = 5, .width_mult = 0.35});
}

TEST(VisionTransformer, LogitsEqualTorchvision) {
  models::VisionTransformer model({.image_size = 16,
                                   .patch_size = 4,
                                   .num_layers = 2,
                                   .num_heads = 2,
                                   .hidden_dim = 16,
                                   .mlp_dim = 24,
                                   .num_classes = 5});
  draw_module(model);
  expect_close(model(drawn({2, 3, 16, 16}, 2)), recorded("vit/logits"), kTolerance);
}

/// Number of elements of all parameters.
int64_t count(const nn::Module& model) {
  int64_t sum = 0;
  for (const Tensor& parameter : model.parameters()) sum += parameter.numel();
  return sum;
}

TEST(VisionTransformer, VitB16HasTorchvisionsState) {
  const nn::init::SkipGuard skip;
  const models::VisionTransformer model;
  EXPECT_EQ(state_text(model.state_dict()), recorded_text("vit_b_16/state"));
}

/// Expects the state of torchvision's model with one layer and two classes, and the number of parameters of the whole
/// model, which is computed from one and two layers.
void expect_large_vit(models::VisionTransformerOptions options, const std::string& name) {
  const int64_t layers = options.num_layers;
  options.num_layers = 1;
  options.num_classes = 2;
  const nn::init::SkipGuard skip;
  const models::VisionTransformer model(options);
  EXPECT_EQ(state_text(model.state_dict()), recorded_text(name + "/state"));
  const auto& layer = model.get_submodule("encoder.layers.encoder_layer_0");
  const int64_t parameters = count(model) + (layers - 1) * count(layer) + 998 * (options.hidden_dim + 1);
  EXPECT_EQ(std::to_string(parameters), recorded_text(name + "/parameters/state"));
}

TEST(VisionTransformer, LargerSizesHaveTorchvisionsState) {
  using Options = models::VisionTransformerOptions;
  expect_large_vit(Options::vit_b_32(), "vit_b_32");
  expect_large_vit(Options::vit_l_16(), "vit_l_16");
  expect_large_vit(Options::vit_l_32(), "vit_l_32");
  expect_large_vit(Options::vit_h_14(), "vit_h_14");
}

TEST(OtherImageModels, ResultsEqualPyTorch) {
  models::Mlp mlp;
  draw_module(mlp);
  expect_close(mlp(drawn({3, 1, 28, 28}, 4)), recorded("mlp/logits"), kTolerance);
  models::LeNet lenet;
  draw_module(lenet);
  expect_close(lenet(drawn({3, 1, 28, 28}, 4)), recorded("lenet/logits"), kTolerance);
  const models::DcganOptions sizes = {.latent = 8, .width = 4, .channels = 3, .levels = 2};
  models::DcganGenerator generator(sizes);
  draw_module(generator);
  expect_close(generator(drawn({2, 8, 1, 1}, 5)), recorded("dcgan/images"), kTolerance);
  models::DcganDiscriminator discriminator(sizes);
  draw_module(discriminator);
  expect_close(discriminator(drawn({2, 3, 16, 16}, 6)), recorded("dcgan/logits"), kTolerance);
}

TEST(UNet, ImagesEqualPyTorch) {
  models::UNet model({.width = 8, .levels = 3, .groups = 4});
  draw_module(model);
  // Every third row and column is recorded.
  const Tensor images = model(drawn({2, 3, 16, 16}, 6)).slice(2, 0, 16, 3).slice(3, 0, 16, 3);
  expect_close(images, recorded("unet/images"), kTolerance);
}

double deviation(const Tensor& tensor) { return tensor.std({}, 0).item(); }

TEST(InitialValues, FollowTorchvision) {
  const models::ResNet18 resnet({.num_classes = 10, .zero_init_residual = true});
  // Kaiming normal: sqrt(2 / fan-out).
  EXPECT_NEAR(deviation(resnet.get_parameter("layer2.0.conv1.weight")), std::sqrt(2.0 / (128 * 9)), 5e-4);
  EXPECT_EQ(resnet.get_parameter("layer3.1.bn1.weight").sum().item(), 256);
  EXPECT_EQ(resnet.get_parameter("layer3.1.bn2.weight").sum().item(), 0);
  const models::MobileNetV2 mobilenet({.num_classes = 10});
  EXPECT_NEAR(deviation(mobilenet.get_parameter("features.3.conv.1.0.weight")), std::sqrt(2.0 / (144 * 9)), 3e-3);
  EXPECT_NEAR(deviation(mobilenet.get_parameter("classifier.1.weight")), 0.01, 5e-4);
  EXPECT_EQ(mobilenet.get_parameter("classifier.1.bias").abs().sum().item(), 0);
  const models::VisionTransformer vit(
      {.image_size = 32, .num_layers = 1, .num_heads = 2, .hidden_dim = 64, .mlp_dim = 256});
  EXPECT_NEAR(deviation(vit.get_parameter("conv_proj.weight")), 1 / std::sqrt(3 * 256.0), 1e-3);
  EXPECT_NEAR(deviation(vit.get_parameter("encoder.pos_embedding")), 0.02, 5e-3);
  // Xavier uniform: the bound is sqrt(6 / (fan-in + fan-out)).
  EXPECT_NEAR(vit.get_parameter("encoder.layers.encoder_layer_0.mlp.0.weight").max().item(), std::sqrt(6.0 / 320),
              1e-3);
  EXPECT_NEAR(deviation(vit.get_parameter("encoder.layers.encoder_layer_0.mlp.3.bias")), 1e-6, 5e-7);
  EXPECT_EQ(vit.get_parameter("heads.head.weight").abs().sum().item(), 0);
  const models::DcganGenerator dcgan({.width = 16});
  EXPECT_NEAR(deviation(dcgan.get_parameter("main.3.weight")), 0.02, 5e-4);
  EXPECT_NEAR(deviation(dcgan.get_parameter("main.1.weight")), 0.02, 5e-3);
  EXPECT_NEAR(dcgan.get_parameter("main.1.weight").mean().item(), 1, 0.01);
}

TEST(ResNet, SmallImagesKeepTheirSizeInTheStem) {
  models::ResNet18 model({.num_classes = 7, .width = 8, .small_images = true});
  EXPECT_EQ(model(ones({2, 3, 8, 8})).shape(), Shape({2, 7}));
  EXPECT_EQ(model.conv1.weight.shape(), Shape({8, 3, 3, 3}));
  // torchvision's number with this stem and 10 classes.
  const nn::init::SkipGuard skip;
  EXPECT_EQ(count(models::ResNet18({.num_classes = 10, .small_images = true})), 11173962);
}

TEST(ResNet, HeadCanBeReplaced) {
  models::ResNet18 model({.width = 8});
  model.replace_module("fc", nn::Linear(64, 3));
  EXPECT_EQ(model(ones({1, 3, 64, 64})).shape(), Shape({1, 3}));
}

TEST(ImageModels, WrongOptionsAreRejected) {
  EXPECT_ERROR(ValueError, models::ResNet(models::ResNetBlock::kBasic, {1, 1, 1}, {.width = 4}),
               "ResNet: layers has 3 numbers of blocks, expected one for each of the 4 groups");
  EXPECT_ERROR(ValueError, models::ResNet(models::ResNetBlock::kBasic, {1, 1, 0, 1}, {.width = 4}),
               "ResNet: layers[2] is 0, expected at least 1");
  EXPECT_ERROR(ValueError, models::MobileNetV2({.inverted_residual_setting = {}}),
               "MobileNetV2: inverted_residual_setting is empty; expected at least one group of blocks");
  EXPECT_ERROR(ValueError, models::MobileNetV2({.round_nearest = 0}),
               "MobileNetV2: round_nearest is 0 and width_mult 1, expected at least 1 and a positive number");
  EXPECT_ERROR(ValueError, models::VisionTransformer({.image_size = 30, .patch_size = 4}),
               "VisionTransformer: image_size 30 is not a positive multiple of patch_size 4");
  EXPECT_ERROR(ValueError, models::UNet({.levels = 0}), "UNet: levels is 0, expected 1 <= levels <= 16");
  EXPECT_ERROR(ValueError, models::DcganGenerator({.levels = 17}),
               "DcganGenerator: levels is 17, expected 1 <= levels <= 16");
}

TEST(VisionTransformer, ImagesOfAnotherSizeAreRejected) {
  models::VisionTransformer vit(
      {.image_size = 8, .patch_size = 4, .num_layers = 1, .num_heads = 1, .hidden_dim = 4, .mlp_dim = 4});
  EXPECT_ERROR(
      ShapeError, vit(ones({1, 3, 8, 4})),
      "VisionTransformer: images is float32 [1, 3, 8, 4] on cpu, expected [N, 3, 8, 8]\n  in VisionTransformer");
}

}}  // namespace tandem::testing
