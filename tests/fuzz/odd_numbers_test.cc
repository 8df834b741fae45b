// Operations, layers, models, datasets and schedules with odd numbers as sizes, counts, positions and elements: each
// call returns or throws an Error. With UndefinedBehaviorSanitizer no arithmetic overflows.
#include <bit>
#include <new>
#include <regex>
#include <span>

#include <tandem/models/dcgan.h>
#include <tandem/models/ddpm_unet.h>
#include <tandem/models/gpt2.h>
#include <tandem/models/lenet.h>
#include <tandem/models/llama.h>
#include <tandem/models/lstm.h>
#include <tandem/models/mlp.h>
#include <tandem/models/mobilenet.h>
#include <tandem/models/resnet.h>
#include <tandem/models/unet.h>
#include <tandem/models/vision_transformer.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/metrics.h>
#include <tandem/train/plot.h>

// Requests that a process cannot be expected to satisfy fail at once, also with AddressSanitizer.
void* operator new(size_t size) {
  void* const block = size > (size_t{1} << 28) ? nullptr : std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace tandem::testing { namespace {

using Number = int64_t;

// clang-format off
constexpr Number kOdd[] = {INT64_MIN, INT64_MIN + 1, -(Number{1} << 40), -7, -1, 0, 1, 2, 3, 8, Number{1} << 31,
                           (Number{1} << 40) + 1, Number{1} << 60, Number{1} << 62, INT64_MAX - 1, INT64_MAX};
// clang-format on

/// Calls with one, two or three odd numbers; `x` is float32 [2, 4, 6, 6].
struct Call {
  const char* name;
  std::function<void(const Tensor& x, Number a, Number b, Number c)> run;
};

#define CALL(...)                                                     \
  Call {                                                              \
#__VA_ARGS__, [](const Tensor& x, Number a, Number b, Number c) {   \
      static_cast<void>(x.defined() && a == b && b == c);               \
      static_cast<void>(__VA_ARGS__);                                   \
    } \
  }

Tensor ints(const std::vector<int64_t>& values) {
  return from_vector<int64_t>(values, {static_cast<int64_t>(values.size())}, {kInt64});
}
Tensor row(const Tensor& x) { return x[0][0][0]; }             ///< [6]
Tensor matrix(const Tensor& x) { return x[0][0]; }             ///< [6, 6]
Tensor sequence(const Tensor& x) { return x.select(1, 0); }    ///< [2, 6, 6]
Tensor image(const Tensor& x) { return x[0].slice(0, 0, 3); }  ///< [3, 6, 6]
Tensor attend(const Tensor& x, Number left, Number right, Number offset) {
  return scaled_dot_product_attention(x, x, x, {.window = {left, right}, .query_offset = offset});
}
nn::PackedSequence packed(const Tensor& x, Number a, Number b, Number c) {
  return {matrix(x), ints({a, b}), c == 0 ? Tensor() : ints({c, 0}), {}};
}
data::Batch mixed(Number classes, Number label) {
  data::ItemRandom random = data::batch_random(1, 0, 0);
  return data::mixup({.num_classes = classes})({ones({2, 1}), ints({label, 0}), 2}, random);
}
data::Example transformed(const data::Transform& transform, const Tensor& x) {
  data::ItemRandom random = data::item_random(1, 0, 0);
  return transform({image(x), {}}, random);
}
size_t load(Number size, const data::DataLoaderOptions& options) {
  const data::DigitsDataset dataset(size);
  data::SequentialSampler sampler(size);
  size_t count = 0;
  for (const auto& batch : data::DataLoader(dataset, sampler, options)) count += batch.size > 0 && count < 9;
  return count;
}
Number restore(data::Sampler&& sampler, Number epoch, Number position, Number size) {
  State state;
  for (const char* name : {"seed", "start", "epoch"}) state.set(name, epoch);
  for (const char* name : {"position", "world_size"}) state.set(name, position);
  for (const char* name : {"size", "dataset_size"}) state.set(name, size);
  sampler.load_state_dict(state);
  return static_cast<Number>(sampler.begin_epoch().size() + sampler.begin_epoch().size());
}
Number advance(data::Sampler&& sampler, Number count, Number more) {
  sampler.advance(count);
  sampler.begin_epoch();
  sampler.advance(more);
  return static_cast<Number>(sampler.begin_epoch().size());
}
std::string chart(Number x, Number y) {
  return train::to_svg({"", "", "", {{"", {0, std::bit_cast<double>(x)}, {0, std::bit_cast<double>(y)}}}});
}
text::TokenDataset tokens(Number context, Number stride) {
  return text::TokenDataset(std::vector<uint16_t>(9), {context, stride});
}
models::Gpt2 small_gpt2() { return models::Gpt2({.vocab_size = 9, .n_positions = 9, .n_embd = 12, .n_layer = 1}); }
template <class Schedule, class Options>
double last_rate(const Options& options, Number steps = 0) {
  optim::SGD sgd({zeros({1}).requires_grad_()}, {.lr = 1, .momentum = 0.5});
  Schedule schedule(sgd, options);
  schedule.set_steps(steps);
  for (int i = 0; i < 3; ++i) schedule.step();
  return sgd.lr();
}

// clang-format off
const Call kCalls[] = {
    // factories and views
    CALL(zeros({a, b, c})), CALL(arange(a, b, c)), CALL(linspace(0, 1, a)), CALL(eye(a, b)), CALL(full({a, 0, b}, c)),
    CALL(x.view({a, b})), CALL(x.reshape({a, b, c})), CALL(zeros({0}).view({a, b, c})), CALL(x.expand({a, b, 4, 6, 6})),
    CALL(x.unflatten(a, {b, c})), CALL(zeros({0}).unflatten(0, {a, b, c})), CALL(x.flatten(a, b)), CALL(x.squeeze(a)),
    CALL(x.unsqueeze(a)), CALL(x.transpose(a, b)), CALL(x.permute({a, b, c, 0})), CALL(x.movedim(a, b)),
    CALL(x.slice(a, b, c)), CALL(x.slice(2, a, b, c)), CALL(x.select(a, b)), CALL(x.narrow(a, b, c)), CALL(x.size(a)),
    CALL(x.split(a, b)), CALL(split(x, {a, b, c}, 1)), CALL(x.chunk(a, b)), CALL(zeros({0, 2}).chunk(a)),
    CALL(tensor_split(x, a, b)), CALL(tensor_split(x, {a, b, c}, 1)), CALL(x.unbind(a)),
    CALL(zeros({1}).expand({a}).unbind()), CALL(zeros({1}).expand({a, b}).to_vector<double>()), CALL(cat({x, x}, a)),
    CALL(stack({x, x}, a)), CALL(x.repeat({a, b, c, 1})), CALL(x.repeat_interleave(a, b)),
    CALL(repeat_interleave(row(x).slice(0, 0, 3), ints({a, b, c}))), CALL(x.flip({a, b})), CALL(x.roll({a, b}, {c, 0})),
    CALL(x.roll({a}, {})), CALL(x.unfold(a, b, c)), CALL(x.unfold(3, a, b)), CALL(x.diagonal(a, b, c)),
    CALL(diag_embed(x, a, b, c)), CALL(diag(row(x), a)), CALL(diag(matrix(x), a)), CALL(x.tril(a)), CALL(x.triu(a)),
    CALL(x.index({Slice(a, b, c)})), CALL(x.index({a, b, c})), CALL(pad(x, {a, b, c, 1})),
    CALL(pad(sequence(x), {a, b}, PadMode::kReflect)), CALL(pad(sequence(x), {a, b}, PadMode::kCircular)),
    CALL(make_view(x.storage(), kFloat32, {a, b}, {c, 1}, 0)),
    CALL(make_view(x.storage(), kFloat32, {2, 2}, {a, b}, c)),
    // elements as indices and counts
    CALL(bincount(ints({a, b}), {}, c)), CALL(one_hot(ints({a, b}), c)), CALL(embedding(ints({a, b}), matrix(x), c)),
    CALL(gather(x, a, ints({b, c}))), CALL(gather(row(x), 0, ints({a, b, c}))), CALL(x.index_select(a, ints({b, c}))),
    CALL(x.index({ints({a, b, c})})), CALL(index_add(row(x), 0, ints({a, b}), zeros({2}), c)),
    CALL(index_fill(row(x), 0, ints({a, b}), c)), CALL(scatter(row(x), 0, ints({a, b}), c)),
    CALL(take_along_dim(x, ints({a, b}), c)), CALL(cross_entropy(matrix(x), ints({a, b, c, 0, 1, 2}))),
    CALL(nll_loss(matrix(x), ints({a, a, b, b, 0, 1}), {.ignore_index = c})),
    CALL(max_unpool1d(row(x).view({1, 6}), ints({a, b, c, 0, 1, 2}).view({1, 6}), 2)),
    // reductions, sorting, random numbers
    CALL(x.sum({a, b})), CALL(x.var({a}, static_cast<double>(b))), CALL(x.prod(a)), CALL(x.max(a)), CALL(x.argmax(a)),
    CALL(x.cumsum(a)), CALL(x.topk(a, b)), CALL(x.kthvalue(a, b)), CALL(x.median(a)), CALL(x.sort(a)),
    CALL(softmax(x, a)), CALL(glu(x, a)), CALL(randint(a, b, {c})), CALL(randperm(a)), CALL(multinomial(row(x), a)),
    CALL(multinomial(matrix(x), a, true)), CALL(round(x, a)), CALL(gumbel_softmax(x, 1, true, a)),
    CALL(ints({a, b, c}).sum()), CALL(ints({a, b}) * ints({b, c})), CALL(ints({a, b}) - c), CALL(-ints({a}).abs()),
    CALL(pow(ints({a, b}), c)), CALL(floor_divide(ints({a, b}), c)), CALL(remainder(ints({a, b}), c)),
    CALL(clamp(ints({a}), b, c)), CALL(ints({a, b, c}).cumprod(0)), CALL(ints({a, b}).to(kInt32)),
    // windows
    CALL(max_pool2d(x, {a, b}, {.stride = c})), CALL(max_pool2d(x, a, {.padding = b, .dilation = c})),
    CALL(avg_pool2d(x, {a, b}, {.divisor_override = c})),
    CALL(max_pool1d(sequence(x), a, {.stride = b, .padding = c, .ceil_mode = true})),
    CALL(avg_pool1d(sequence(x), a, {.stride = b, .padding = c, .ceil_mode = true})),
    CALL(adaptive_avg_pool2d(x, {a, b})), CALL(adaptive_max_pool2d(x, {a, b})),
    CALL(max_unpool2d(x, x.to(kInt64), a, {.stride = b, .padding = c})),
    CALL(max_unpool2d(x, x.to(kInt64), 2, {.stride = a, .output_size = Size2d(b, c)})),
    CALL(conv2d(x, x, {}, {.stride = a, .padding = b, .dilation = c})),
    CALL(conv2d(x, x, {}, {.padding = kSame, .dilation = a, .groups = b})),
    CALL(conv1d(sequence(x), sequence(x), {}, {.stride = a, .padding = b, .dilation = c})),
    CALL(conv_transpose2d(x, x.view({4, 2, 6, 6}), {}, {.stride = a, .padding = b, .dilation = c})),
    CALL(conv_transpose2d(x, x.view({4, 2, 6, 6}), {}, {.output_padding = a, .groups = b, .dilation = c})),
    CALL(interpolate(x, {.size = {a, b}})), CALL(interpolate(x, {.size = {a, b}, .mode = InterpolateMode::kBicubic})),
    CALL(interpolate(x, {.scale_factor = {1.0 * a, 1.0 * b}})), CALL(pixel_shuffle(x, a)), CALL(pixel_unshuffle(x, a)),
    CALL(channel_shuffle(x, a)), CALL(group_norm(x, a)), CALL(layer_norm(x, {a, b}, {}, {})),
    // attention and recurrent operations
    CALL(attend(x, a, b, c)), CALL(scaled_dot_product_attention(x, x, x, {.is_causal = true, .query_offset = a})),
    CALL(qkv_attention(sequence(x), a)), CALL(rotary_tables(a, b, {.offset = c})),
    CALL(nn::KeyValueCache(a).append(x, x)),
    CALL(lstm(sequence(x), {x[0], x[0]}, {x, x}, {.num_layers = a, .bidirectional = true})),
    CALL(gru(sequence(x), x[0], {x}, {.has_biases = false, .num_layers = a})),
    CALL(gru(matrix(x), zeros({1, 2, 2}), {zeros({6, 6}), zeros({6, 2})},
             {.has_biases = false, .batch_sizes = ints({a, b, c})})),
    CALL(nn::pad_packed_sequence(packed(x, a, b, c))),
    CALL(nn::pad_packed_sequence(packed(x, 3, 3, 0), {.total_length = a})), CALL(nn::GRU(6, 2)(packed(x, a, b, c))),
    CALL(nn::pack_padded_sequence(x, ints({a, b, c, 1}), {.enforce_sorted = false})),
    CALL(nn::pack_padded_sequence(x, ints({a, b}), {.batch_first = true})),
    // layers
    CALL(nn::Linear(a, b)), CALL(nn::Bilinear(a, b, c)), CALL(nn::Embedding(a, b, {.padding_idx = c})),
    CALL(nn::PReLU(a)), CALL(nn::Flatten(a, b)(x)), CALL(nn::Conv1d(a, b, c)),
    CALL(nn::Conv2d(4, 4, a, {.padding = b, .dilation = c})), CALL(nn::ConvTranspose2d(a, b, c)),
    CALL(nn::Conv2d(4, 4, 2, {.padding = a, .dilation = b, .padding_mode = PadMode::kReflect})(x)),
    CALL(nn::Conv2d(4, 4, 2, {.padding = kSame, .dilation = a, .padding_mode = PadMode::kCircular})(x)),
    CALL(nn::ConvTranspose2d(4, 4, 2, {.stride = a, .padding = b})(x, Size2d(c, c))),
    CALL(nn::ConvTranspose1d(4, 4, 2, {.dilation = a})(x[0], b)), CALL(nn::BatchNorm2d(a)(x)),
    CALL(nn::GroupNorm(a, b)), CALL(nn::InstanceNorm2d(a)(x)), CALL(nn::LayerNorm(Shape{a, b})),
    CALL(nn::RMSNorm(a)(x)), CALL(nn::LSTM(a, b)), CALL(nn::GRU(a, b, {.bidirectional = true})),
    CALL(nn::RNN(256, 256, {.num_layers = a})), CALL(nn::LSTMCell(a, b)), CALL(nn::GRUCell(a, b)),
    CALL(nn::MultiheadAttention(a, b, {.kdim = c})), CALL(nn::MultiheadAttention(a, 1)),
    CALL(nn::TransformerEncoderLayer(a, b, {.dim_feedforward = c})), CALL(nn::TransformerDecoder(256, 4, a)),
    CALL(nn::MaxPool2d(Size2d(a, b))(x)), CALL(nn::AdaptiveAvgPool1d(a)(sequence(x))),
    CALL(nn::MaxUnpool1d(a)(row(x).view({1, 6}), ints({0, 1, 2, 3, 4, 5}).view({1, 6}))),
    CALL(nn::ZeroPad2d({a, b, c, 1})(x)), CALL(nn::PixelShuffle(a)(x)), CALL(nn::init::dirac_(x.clone(), a)),
    CALL(nn::Unflatten(a, {b, c})(x)), CALL(nn::Softmax(a)(x)),
    // models
    CALL(models::Mlp({.in_features = a, .hidden = {b}, .num_classes = c})),
    CALL(models::LeNet({.in_channels = a, .num_classes = b})),
    CALL(models::UNet({.channels = a, .width = b, .groups = c})), CALL(models::UNet({.levels = a})),
    CALL(models::DcganGenerator({.latent = a, .width = b})),
    CALL(models::DcganDiscriminator({.width = a, .levels = b})), CALL(models::DdpmUNet({.width = a, .groups = b})),
    CALL(models::DdpmUNet({.channels = a, .width = 2, .multipliers = {b}, .groups = 1, .patch = c})),
    CALL(models::ResNet(models::ResNetBlock::kBottleneck, {1, 1, 1, 1}, {.num_classes = a, .width = b})),
    CALL(models::MobileNetV2({.num_classes = a, .inverted_residual_setting = {{b, c, 1, 1}}})),
    CALL(models::VisionTransformer({.image_size = a, .patch_size = b, .num_layers = 1, .hidden_dim = 12})),
    CALL(models::LstmLanguageModel({.vocabulary = a, .width = b})),
    CALL(models::Gpt2({.vocab_size = a, .n_positions = b, .n_embd = 12, .n_layer = 1})),
    CALL(models::Gpt2Attention({.n_embd = a})),
    CALL(small_gpt2().generate(ints({1, 2}).view({1, 2}), {.max_new_tokens = a})),
    CALL(models::Llama({9, 8, 8, 1, a, b, c, 9})), CALL(models::Llama({9, a, b, 1, 2, 1, 4, c})),
    CALL(models::sample_token(row(x), 1, a)),
    // data and text
    CALL(data::DigitsDataset(a).get(b)), CALL(data::ShapesDataset(a, 0, {.side = b}).get(c)),
    CALL(data::SequentialSampler(a).begin_epoch()), CALL(data::RandomSampler(a).begin_epoch()),
    CALL(data::DistributedSampler(a, 0, 2).begin_epoch()), CALL(data::WeightedRandomSampler({1, 2}, a).begin_epoch()),
    CALL(advance(data::SequentialSampler(3), a, b)), CALL(restore(data::RandomSampler(3), a, b, c)),
    CALL(restore(data::DistributedSampler(3, 0, 1), a, b, c)),
    CALL(load(3, {.batch_size = a})), CALL(load(a, {.batch_size = b, .drop_last = true})),
    CALL(load(3, {.prefetch = a})), CALL(load(3, {.num_workers = 2, .prefetch = a})),
    CALL(data::make_grid(x.slice(1, 0, 3), {.nrow = a, .padding = b})), CALL(data::crop(image(x), a, b, c, 3)),
    CALL(data::resize_image(image(x), a, b)), CALL(transformed(data::resize(a), x)),
    CALL(transformed(data::center_crop(a), x)), CALL(transformed(data::random_crop(a), x)),
    CALL(transformed(data::random_resized_crop(a), x)), CALL(mixed(a, b)), CALL(tokens(a, b).get(c)),
    CALL(data::random_split(data::DigitsDataset(3), {1.0 * a, 1.0 * b, 1.0 * c})),
    // metrics and charts
    CALL(train::ConfusionMatrix(a).compute()), CALL(chart(a, b)), CALL(train::to_svg({"", "", "", {{"", {1, 2}, {3}}}})),
    // many matrices, lines and sequences without elements
    CALL(linalg::qr(zeros({a, 0, 2}))), CALL(linalg::svd(zeros({a, 2, 0}))), CALL(linalg::det(zeros({a, 0, 0}))),
    CALL(linalg::inv(zeros({a, 0, 0}))), CALL(linalg::cholesky(zeros({a, 0, 0}))), CALL(linalg::eigh(zeros({a, 0, 0}))),
    CALL(linalg::solve(zeros({a, 0, 0}), zeros({a, 0, 2}))), CALL(zeros({a, 0, b}).cumsum(1)),
    CALL(zeros({0, a}).cummax(0)), CALL(nn::pack_sequence({zeros({a, 0})})), CALL(qkv_attention(zeros({a, 0, 3}), 1)),
    CALL(nn::init::dirac_(zeros({0, 1, 1}), a)),
    // tensors alone
    CALL(nn::Linear(6, 2)(x)), CALL(nn::Bilinear(6, 6, 2)(x, x)), CALL(nn::Embedding(9, 3)(x)),
    CALL(nn::Conv1d(4, 4, 2)(x)), CALL(nn::Conv2d(4, 4, 2)(x)),
    CALL(nn::Conv2d(4, 4, 2, {.padding = 1, .padding_mode = PadMode::kReflect})(x)),
    CALL(nn::ConvTranspose1d(4, 4, 2)(x, 7)), CALL(nn::ConvTranspose2d(4, 4, 2)(x, 7)), CALL(nn::BatchNorm1d(4)(x)),
    CALL(nn::BatchNorm2d(4)(x)), CALL(nn::GroupNorm(2, 4)(x)), CALL(nn::InstanceNorm2d(4)(x)),
    CALL(nn::LayerNorm(6)(x)), CALL(nn::RMSNorm(6)(x)), CALL(nn::LSTM(6, 2)(x)), CALL(nn::GRU(6, 2)(x, x)),
    CALL(nn::RNN(6, 2)(x)), CALL(nn::LSTMCell(6, 2)(x, x, x)), CALL(nn::GRUCell(6, 2)(x)), CALL(nn::RNNCell(6, 2)(x)),
    CALL(nn::LSTM(6, 2)(nn::PackedSequence{x, x, x, x})), CALL(nn::pad_packed_sequence({x, x, x, {}})),
    CALL(nn::pack_padded_sequence(x, x)), CALL(nn::pad_sequence({x, x})), CALL(nn::pack_sequence({x})),
    CALL(nn::MultiheadAttention(6, 2)(x)), CALL(nn::MultiheadAttention(6, 2)(x, x)),
    CALL(nn::MultiheadAttention(6, 2)(x, zeros({4, 3, 3}))), CALL(nn::MultiheadAttention(6, 2)(x, x, x)),
    CALL(nn::MultiheadAttention(6, 2)(zeros({2, 3, 6}), x, x, {.key_padding_mask = x})),
    CALL(nn::KeyValueCache(7).append(x, x)), CALL(nn::TransformerEncoderLayer(6, 2)(x)),
    CALL(nn::TransformerDecoderLayer(6, 2)(x, x)), CALL(nn::MaxPool1d(2)(x)), CALL(nn::MaxPool2d(2)(x)),
    CALL(nn::AvgPool2d(2)(x)), CALL(nn::AdaptiveAvgPool2d(2)(x)), CALL(nn::AdaptiveMaxPool2d(2)(x)),
    CALL(nn::MaxUnpool2d(2)(x, x)), CALL(nn::PixelShuffle(2)(x)), CALL(nn::ChannelShuffle(2)(x)),
    CALL(nn::Upsample({.scale_factor = {2, 2}})(x)), CALL(nn::Flatten()(x)), CALL(nn::Unflatten(1, {2, 2})(x)),
    CALL(nn::PReLU(4)(x)), CALL(nn::CosineSimilarity()(x, x)), CALL(nn::CrossEntropyLoss()(x, x)),
    CALL(nn::BCELoss()(x, x)), CALL(nn::TripletMarginLoss()(x, x, x)), CALL(nn::init::xavier_uniform_(x.clone())),
    CALL(nn::init::orthogonal_(x.clone())), CALL(nn::init::dirac_(x.clone())), CALL(models::LeNet()(x)),
    CALL(models::LstmLanguageModel({.vocabulary = 9, .width = 8})(x)),
    CALL(small_gpt2()(x)),
    CALL(models::UNet({.width = 8, .levels = 1})(x)), CALL(data::make_grid(x)), CALL(data::crop(x, 1, 1, 2, 2)),
    CALL(data::resize_image(x, 2, 2)), CALL(data::hflip(x)), CALL(data::vflip(x)), CALL(data::adjust_contrast(x, 2)),
    CALL(data::adjust_hue(x, 0.1)), CALL(data::encode_png(x)),
    CALL(data::default_collate(std::vector<data::Example>{{x, x}, {x, x}})), CALL(optim::SGD({x}, {.lr = 1}).step()),
    CALL(optim::clip_grad_norm_({x}, 1)), CALL(x.to_vector<double>()), CALL(x.item()), CALL(x[0]),
    // schedules
    CALL(last_rate<optim::StepLR>(optim::StepLROptions{.step_size = a}, b)),
    CALL(last_rate<optim::CosineAnnealingWarmRestarts>(optim::CosineAnnealingWarmRestartsOptions{a, b}, c)),
    CALL(last_rate<optim::OneCycleLR>(optim::OneCycleLROptions{1, a, b, c})),
    CALL(last_rate<optim::CyclicLR>(optim::CyclicLROptions{1, 2, a, b})),
    CALL(last_rate<optim::LinearLR>(optim::LinearLROptions{.total_iters = a}, b)),
};
// clang-format on

class OddNumbers : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { set_memory_limit(Device(), int64_t{1} << 22); }
  void TearDown() override { set_memory_limit(Device(), 0); }
};

void check(const Call& call, const Tensor& x, Number a, Number b, Number c) {
  SCOPED_TRACE(str(call.name, " with a = ", a, ", b = ", b, ", c = ", c, ", x = ", describe(x)));
  try {
    call.run(x, a, b, c);
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an Error: " << error.what();
  }
}

TEST_P(OddNumbers, GiveAnErrorOrAResult) {
  const Call& call = kCalls[GetParam()];
  const auto numbers = [&](const char* name) {  // of an argument that the call has
    const bool is_used = std::regex_search(call.name, std::regex(str("\\b", name, "\\b")));
    return is_used ? std::span(kOdd) : std::span(kOdd).first(1);
  };
  const Tensor x = rand({2, 4, 6, 6});
  for (const Number a : numbers("a")) {
    for (const Number b : numbers("b")) {
      for (const Number c : numbers("c")) check(call, x, a, b, c);
    }
  }
  for (const Tensor& odd :
       {Tensor(), zeros({}), zeros({0}), zeros({0, 6}), zeros({4, 0, 6}), x[0], x.to(kInt64), x.to(kBool),
        x.to(kFloat16), ints({INT64_MAX, INT64_MIN}), zeros({1}).expand({int64_t{1} << 40, 6})}) {
    check(call, odd, 1, 2, 1);
  }
}

TEST(HostMemory, ErrorsNameTheOperation) {
  const Tensor x = zeros({1}).expand({int64_t{1} << 40});
  EXPECT_ERROR(OutOfMemory, x.to_vector<float>(), "to_vector: no memory for 4398046511104 bytes");
  EXPECT_ERROR(OutOfMemory, x.unbind(), "unbind: no memory for 8796093022208 bytes");
}

INSTANTIATE_TEST_SUITE_P(Calls, OddNumbers, ::testing::Range<size_t>(0, std::size(kCalls)));

}}  // namespace tandem::testing
