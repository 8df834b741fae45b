// Assignment to the results of public functions outside of ops/, whose results tests/ops/operations_test.cc checks.
#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/engine.h>
#include <tandem/distributed/ddp/power_sgd.h>
#include <tandem/models/causal_language_model.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/metrics.h>

namespace tandem { namespace {

struct Net : nn::Layer {
  nn::Linear& fc = add<nn::Linear>("fc", 2, 2);
  nn::BatchNorm1d& bn = add<nn::BatchNorm1d>("bn", 2);
  Tensor forward(const Tensor& x) override { return bn(fc(x)); }
};

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

/// Functions whose result is a new tensor.
std::map<std::string, std::function<Tensor()>> functions() {
  using namespace data;
  using namespace distributed::functional;
  using namespace models;
  using namespace train;
  static const Tensor x = ones({2, 2}), image = full({3, 4, 4}, 0.5), counts = eye(2, {kInt64});
  const auto leaf = [] {
    Tensor w = ones({2});
    w.requires_grad_();
    w.set_grad(ones({2}));
    return w;
  };
  const auto alone = [](const std::function<Tensor()>& f) {
    Tensor result;
    distributed::run_threads(1, [&](distributed::Context&) { result = f(); });
    return result;
  };
  return {
      {"empty", [] { return empty({2}); }},
      {"zeros", [] { return zeros({2}); }},
      {"ones", [] { return ones({2}); }},
      {"full", [] { return full({2}, 3); }},
      {"empty_like", [] { return empty_like(x); }},
      {"empty_preserving_layout", [] { return empty_preserving_layout(x, kFloat64); }},
      {"zeros_like", [] { return zeros_like(x); }},
      {"ones_like", [] { return ones_like(x); }},
      {"full_like", [] { return full_like(x, 2); }},
      {"view_elements", [] { return view_elements(ones({4}), 1, 3); }},
      {"arange", [] { return arange(3); }},
      {"linspace", [] { return linspace(0, 1, 3); }},
      {"eye", [] { return eye(2); }},
      {"tensor",
       [] {
         return tensor({1, 2});
       }},
      {"scalar_tensor", [] { return scalar_tensor(2, {kFloat32}); }},
      {"from_vector",
       [] {
         return from_vector<float>({1, 2}, {2});
       }},
      {"activate", [] { return nn::activate(x, nn::Activation::kRelu); }},
      {"pad_sequence",
       [] {
         return nn::pad_sequence({x, x});
       }},
      {"sample_token", [] { return sample_token(x); }},
      {"make_grid", [] { return make_grid(image.unsqueeze(0)); }},
      {"decode_image", [] { return decode_image(encode_png(image)); }},
      {"read_image", [] { return read_image(written("a.png", encode_png(image))); }},
      {"read_idx",
       [] {
         return read_idx(written("a.idx", {"\0\0\10\1\0\0\0\2ab", 10}));
       }},
      {"load_npy",
       [] {
         const std::string path = written("a.npy", "");
         io::save_npy(path, x);
         return io::load_npy(path);
       }},
      {"resize_image", [] { return resize_image(image, 2, 2); }},
      {"crop", [] { return crop(image, 0, 0, 2, 2); }},
      {"hflip", [] { return hflip(image); }},
      {"vflip", [] { return vflip(image); }},
      {"adjust_brightness", [] { return adjust_brightness(image, 2); }},
      {"adjust_contrast", [] { return adjust_contrast(image, 2); }},
      {"adjust_saturation", [] { return adjust_saturation(image, 2); }},
      {"adjust_hue", [] { return adjust_hue(image, 0.1); }},
      {"normalize_confusion", [] { return normalize_confusion(counts, ConfusionNormalize::kAll); }},
      {"precision", [] { return precision(counts); }},
      {"recall", [] { return recall(counts); }},
      {"f1_score", [] { return f1_score(counts); }},
      {"get_total_norm", [] { return optim::get_total_norm({x}); }},
      {"clip_grad_norm_", [leaf] { return optim::clip_grad_norm_({leaf()}, 1); }},
      {"snapshot", [] { return autograd::snapshot(x.clone()); }},
      {"accumulate_with_graph", [] { return autograd::accumulate_with_graph(x, x); }},
      {"orthonormalize", [] { return distributed::orthonormalize(x.clone()); }},
      {"all_reduce", [alone] { return alone([] { return all_reduce(x); }); }},
      {"all_gather", [alone] { return alone([] { return all_gather(x); }); }},
      {"reduce_scatter", [alone] { return alone([] { return reduce_scatter(x.unsqueeze(0)); }); }},
      {"broadcast", [alone] { return alone([] { return broadcast(x, 0); }); }},
      {"all_to_all", [alone] { return alone([] { return all_to_all(x); }); }},
      {"ConfusionMatrix::compute", [] { return ConfusionMatrix(2).compute(); }},
      {"State::get", [] { return Net().state_dict().get<Tensor>("fc.weight"); }},
      {"Layer::operator()", [] { return Net()(x); }},
      {"Loss::operator()", [] { return nn::MSELoss()(x, x); }},
  };
}

TEST(AssignmentToResults, NewTensorsAreErrors) {
  for (const auto& [name, function] : functions()) {
    SCOPED_TRACE(name);
    EXPECT_NE(testing::error_text<StateError>([&] { function() = 1; }).find("would be lost"), std::string::npos);
    EXPECT_NE(testing::error_text<StateError>([&] { function() = ones({}); }).find("would be lost"), std::string::npos);
  }
}

TEST(AssignmentToResults, ParametersAndBuffersAreChanged) {
  const NoGradGuard no_grad;
  Net net;
  net.get_parameter("fc.bias") = 3;
  net.get_buffer("bn.running_mean") = tensor({5.0, 6.0});
  net.state_dict().get<Tensor>("fc.weight") = 4;
  EXPECT_EQ(net.fc.bias.to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(net.bn.running_mean.to_vector<float>(), (std::vector<float>{5, 6}));
  EXPECT_EQ(net.fc.weight.to_vector<float>(), (std::vector<float>{4, 4, 4, 4}));
}

}}  // namespace tandem
