// Loading weights of other programs: renamed keys, other dtypes, tied weights, files that are mapped into memory.
#include <tandem/io/pretrained.h>
#include <tandem/io/safetensors.h>
#include <tandem/io/state_file.h>
#include <tandem/tests/nn/nn.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/temporary_folder.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;
using td::testing::TemporaryFolder;

namespace {

using Keys = std::vector<std::string>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct Body : nn::Module {
  explicit Body(int64_t width = 3) : table(add<nn::Embedding>("table", 5, width)) {}
  nn::Embedding& table;
  nn::BatchNorm1d& norm = add<nn::BatchNorm1d>("norm", 2);
};

/// A language model whose head is tied to the embedding of its body.
struct Net : nn::Module {
  explicit Net(int64_t width = 3) : body(add<Body>("body", width)) {}
  Body& body;
  nn::Module& head = add<nn::Module>("head");
  Tensor& tied = head.add_parameter("weight", body.table.weight);
};

const Keys kAllKeys = {"body.table.weight",
                       "body.norm.weight",
                       "body.norm.bias",
                       "body.norm.running_mean",
                       "body.norm.running_var",
                       "body.norm.num_batches_tracked",
                       "head.weight"};

/// The tensors of a Body, filled with 1, 2, 3, ...; floating-point ones of `dtype`.
NamedTensors body_tensors(td::DType dtype, const std::string& prefix = "") {
  return {{prefix + "table.weight", td::full({5, 3}, 1, {dtype})},
          {prefix + "norm.weight", td::full({2}, 2, {dtype})},
          {prefix + "norm.bias", td::full({2}, 3, {dtype})},
          {prefix + "norm.running_mean", td::full({2}, 4, {dtype})},
          {prefix + "norm.running_var", td::full({2}, 5, {dtype})},
          {prefix + "norm.num_batches_tracked", td::full({}, 6, {td::kInt64})}};
}

void expect_filled(const Net& net) {
  EXPECT_EQ(net.body.table.weight.to_vector<float>(), std::vector<float>(15, 1));
  EXPECT_EQ(net.tied.to_vector<float>(), std::vector<float>(15, 1));
  EXPECT_EQ(net.body.norm.weight.to_vector<float>(), std::vector<float>(2, 2));
  EXPECT_EQ(net.get_buffer("body.norm.running_var").to_vector<float>(), std::vector<float>(2, 5));
  EXPECT_EQ(net.get_buffer("body.norm.num_batches_tracked").item<int64_t>(), 6);
}

TEST(LoadStateDict, ReportListsLoadedKeys) {
  Net net;
  const nn::LoadReport report = net.load_state_dict(body_tensors(td::kFloat32, "body."));
  expect_filled(net);
  EXPECT_EQ(report.loaded_keys, kAllKeys);  // the tied head too
  EXPECT_EQ(report.converted_keys, Keys());
  EXPECT_EQ(report.missing_keys, Keys());
  EXPECT_EQ(report.unexpected_keys, Keys());
  EXPECT_EQ(td::nn::to_string(report), "7 tensors loaded");
}

TEST(LoadStateDict, PrefixesAreAddedAndRemoved) {
  Net added;
  added.load_state_dict(body_tensors(td::kFloat32), {.renames = {{"", "body."}}});
  expect_filled(added);
  Net removed;
  removed.load_state_dict(body_tensors(td::kFloat32, "module.body."), {.renames = {{"module.", ""}}});
  expect_filled(removed);
}

TEST(LoadStateDict, FirstFittingRenameApplies) {
  NamedTensors tensors = body_tensors(td::kFloat32, "model.");
  tensors[0].first = "model.embed.weight";
  Net net;
  net.load_state_dict(tensors, {.renames = {{"model.embed.", "body.table."}, {"model.", "body."}, {"body.", "x."}}});
  expect_filled(net);
}

TEST(LoadStateDict, RenamesApplyToStates) {
  td::State state;
  for (const auto& [name, tensor] : body_tensors(td::kFloat32)) state.set(name, tensor);
  state.set("epoch", int64_t{3});
  Net net;
  const auto report = net.load_state_dict(state, {.strict = false, .renames = {{"", "body."}}});
  expect_filled(net);
  EXPECT_EQ(report.unexpected_keys, Keys{"body.epoch"});
}

TEST(LoadStateDict, EqualKeysAfterRenamingAreAnError) {
  NamedTensors tensors = body_tensors(td::kFloat32, "body.");
  tensors.emplace_back("model.norm.bias", td::zeros({2}));
  tensors.emplace_back("body.norm.weight", td::zeros({2}));
  Net net;
  EXPECT_ERROR(td::StateError, net.load_state_dict(tensors, {.strict = false, .renames = {{"model.", "body."}}}),
               "load_state_dict: the state does not fit Net"
               "\n  duplicate   body.norm.weight"
               "\n  duplicate   body.norm.bias");
  EXPECT_EQ(net.body.norm.weight.to_vector<float>(), std::vector<float>(2, 1));  // unchanged
}

TEST(LoadStateDict, FloatingPointTensorsAreConvertedOnRequest) {
  for (const td::DType dtype : {td::kFloat16, td::kBFloat16, td::kFloat64}) {
    Net net;
    const auto report = net.load_state_dict(body_tensors(dtype, "body."), {.convert_dtype = true});
    expect_filled(net);
    EXPECT_EQ(net.tied.dtype(), td::kFloat32);
    EXPECT_EQ(report.converted_keys, (Keys{"body.table.weight", "body.norm.weight", "body.norm.bias",
                                           "body.norm.running_mean", "body.norm.running_var"}));
    EXPECT_EQ(td::nn::to_string(report), "7 tensors loaded, 5 of them converted");
  }
  Net half;
  half.to(td::kBFloat16);
  half.load_state_dict(body_tensors(td::kFloat16, "body."), {.convert_dtype = true});
  expect_filled(half);
  EXPECT_EQ(half.tied.dtype(), td::kBFloat16);
}

TEST(LoadStateDict, OtherDTypesAreAnErrorThatNamesTheOption) {
  NamedTensors tensors = {{"weight", td::zeros({2, 3}, {td::kFloat16})}, {"bias", td::zeros({2}, {td::kInt64})}};
  nn::Linear layer(3, 2);
  EXPECT_ERROR(td::StateError, layer.load_state_dict(tensors),
               "load_state_dict: the state does not fit Linear (convert_dtype = true converts floating-point tensors)"
               "\n  different   weight: float32 [2, 3] expected, float16 [2, 3] in the state"
               "\n  different   bias: float32 [2] expected, int64 [2] in the state");
  EXPECT_ERROR(td::StateError, layer.load_state_dict(tensors, {.convert_dtype = true}),
               "load_state_dict: the state does not fit Linear"
               "\n  different   bias: float32 [2] expected, int64 [2] in the state");
}

TEST(LoadStateDict, AllShapeMismatchesAreListedAndNothingIsLoaded) {
  NamedTensors tensors = body_tensors(td::kFloat16, "body.");
  tensors[0].second = td::zeros({5, 4}, {td::kFloat16});
  tensors[2].second = td::zeros({2, 1}, {td::kFloat16});
  tensors.emplace_back("head.bias", td::zeros({5}));
  Net net;
  EXPECT_ERROR(td::StateError, net.load_state_dict(tensors, {.strict = false, .convert_dtype = true}),
               "load_state_dict: the state does not fit Net"
               "\n  different   body.table.weight: float32 [5, 3] expected, float16 [5, 4] in the state"
               "\n  different   body.norm.bias: float32 [2] expected, float16 [2, 1] in the state");
  EXPECT_EQ(net.body.norm.weight.to_vector<float>(), std::vector<float>(2, 1));
  EXPECT_EQ(net.body.norm.bias.to_vector<float>(), std::vector<float>(2, 0));
}

TEST(LoadStateDict, MissingAndUnexpectedKeysAreReported) {
  Net net;
  const NamedTensors tensors = {{"body.norm.bias", td::full({2}, 3)},
                                {"not..a path", td::zeros({1})},
                                {"body.norm", td::zeros({1})}};  // a path of a module, no State could have it
  const auto report = net.load_state_dict(tensors, {.strict = false});
  EXPECT_EQ(report.loaded_keys, Keys{"body.norm.bias"});
  EXPECT_EQ(report.unexpected_keys, (Keys{"body.norm", "not..a path"}));
  std::ostringstream text;
  text << report;
  EXPECT_EQ(text.str(),
            "1 tensor loaded"
            "\n  missing     body.table.weight"
            "\n  missing     body.norm.weight"
            "\n  missing     body.norm.running_mean"
            "\n  missing     body.norm.running_var"
            "\n  missing     body.norm.num_batches_tracked"
            "\n  missing     head.weight"
            "\n  unexpected  body.norm"
            "\n  unexpected  not..a path");
}

TEST(LoadStateDict, TiedTensorsWithDifferentValuesAreAnError) {
  NamedTensors tensors = body_tensors(td::kFloat32, "body.");
  tensors.emplace_back("head.weight", td::full({5, 3}, 1));  // equal values in other memory
  Net net;
  net.load_state_dict(tensors);
  expect_filled(net);
  tensors.back().second = td::full({5, 3}, 1, {td::kFloat16});
  net.load_state_dict(tensors, {.convert_dtype = true});
  tensors.back().second = td::full({5, 3}, 9);
  EXPECT_ERROR(td::StateError, net.load_state_dict(tensors, {.strict = false}),
               "load_state_dict: the state does not fit Net"
               "\n  different   head.weight: tied to 'body.table.weight', which has other values in the state");
  expect_filled(net);
}

TEST(LoadStateDict, ConvertedTensorsReachOtherDevices) {
  td::set_cpu_device_count(2);
  Net net;
  net.to(td::Device("cpu:1"));
  net.load_state_dict(body_tensors(td::kFloat64, "body."), {.convert_dtype = true});
  expect_filled(net);
  EXPECT_EQ(net.tied.device(), td::Device("cpu:1"));
}

TEST(LoadStateDict, StateFilesAreLoadedWithRenames) {
  const TemporaryFolder folder;
  Net source;
  source.load_state_dict(body_tensors(td::kFloat32, "body."));
  td::io::save_state(folder / "body.safetensors", source.body.state_dict());
  Net net;
  net.load_state_dict(td::io::load_state(folder / "body.safetensors"), {.renames = {{"", "body."}}});
  expect_filled(net);
}

TEST(LoadStateDict, ShardsOfHalfPrecisionAreLoadedAndTied) {
  const TemporaryFolder folder;
  Net source;
  source.load_state_dict(body_tensors(td::kFloat32, "body."));
  source.to(td::kFloat16);
  td::io::save_pretrained(folder.path(), source.state_dict().tensors(), {.max_shard_size = 20});
  const td::io::SafetensorsFile file = td::io::load_pretrained(folder.path());
  for (const auto& [name, tensor] : file.tensors) EXPECT_NE(name, "head.weight");
  Net net;
  const auto report = net.load_state_dict(file.tensors, {.convert_dtype = true});
  expect_filled(net);
  EXPECT_EQ(report.loaded_keys, kAllKeys);
  EXPECT_TRUE(net.tied.is_same(net.body.table.weight));
}

/// Memory of this process that is not part of files, in bytes: RssAnon of /proc/self/status.
int64_t anonymous_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib << 10;
  }
  ADD_FAILURE() << "/proc/self/status has no RssAnon";
  return 0;
}

TEST(LoadStateDict, MappedFilesAreLoadedWithoutACopyInMemory) {
  constexpr int64_t kWidth = 2048;
  constexpr int64_t kBytes = kWidth * kWidth * 4;  // 16 MiB
  const TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  nn::Linear source(kWidth, kWidth, {.bias = false});
  td::io::save_safetensors(path, source.state_dict().tensors());
  nn::Linear layer(kWidth, kWidth, {.bias = false});
  td::empty_cache(td::Device());
  const int64_t tensors_before = td::memory_stats(td::Device()).allocated;
  td::reset_peak_memory(td::Device());
  const int64_t memory_before = anonymous_memory();
  const td::io::SafetensorsFile file = td::io::load_safetensors(path);
  layer.load_state_dict(file.tensors);
  EXPECT_EQ(td::memory_stats(td::Device()).peak_allocated, tensors_before);
  // Sanitizers have memory of their own for each page that is used.
  constexpr bool kHasShadow = td::testing::kThreadSanitizer || td::testing::kAddressSanitizer;
  const int64_t used = kHasShadow ? 0 : anonymous_memory() - memory_before;
  EXPECT_LT(used, kBytes / 4);
  EXPECT_EQ(layer.weight[kWidth - 1].to_vector<float>(), source.weight[kWidth - 1].to_vector<float>());

  // The same without mapping, to show that the numbers measure it.
  const td::io::SafetensorsFile copy = td::io::load_safetensors(path, {.mmap = false});
  EXPECT_EQ(td::memory_stats(td::Device()).peak_allocated, tensors_before + kBytes);
  EXPECT_GE(anonymous_memory() - memory_before, kBytes);
}

}  // namespace
