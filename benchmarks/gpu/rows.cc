// Times what a GPU does most in training, with what bounds it: copies beside the raw link, products beside cuBLASLt's fastest,
// kernels in bytes per second of what they must read and write.  Calls take copies of their operands in turn, which together are
// several times as large as the L2 cache: they read memory.
//
//     ./bazelw run --config=cuda //benchmarks/gpu
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/benchmarks/gpu/raw.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>

namespace {

namespace td = tandem;
namespace tb = tandem::benchmarks;

struct Settings {
  std::string json;
  int64_t divisor = 1;  // of all sizes
  int rounds = 7;
  bool properties = false;
};

/// Rows of one GPU.
class Rows {
 public:
  Rows(const Settings& settings, tb::Report& report) : settings_(settings), report_(report) {}

  void copies();
  void products();
  void kernels();

 private:
  int64_t size(int64_t whole) const { return std::max<int64_t>(1, whole / settings_.divisor); }
  td::TensorOptions options(td::DType dtype) const { return {dtype, gpu_}; }

  /// Milliseconds of one call among `calls` that are queued together.
  double time(const std::function<void(int call)>& f, int calls = 20) const {
    int call = 0;
    f(call++);
    td::cuda::synchronize(gpu_);
    const tb::Times times = tb::time_calls(
        [&] {
          for (int i = 0; i < calls; ++i) f(call++);
          td::cuda::synchronize(gpu_);
        },
        1, settings_.rounds);
    return times.median_ms / calls;
  }
  /// `tensor` and copies of it, for calls to take in turn.
  std::vector<td::Tensor> copies_of(const td::Tensor& tensor) const {
    constexpr int64_t kCaches = 6, kMaxCopies = 64;
    const int64_t bytes = kCaches * td::cuda::device_properties(gpu_).l2_bytes;
    std::vector<td::Tensor> tensors = {tensor};
    for (int64_t i = std::min(kMaxCopies, bytes / tensor.num_bytes()); i > 0; --i) tensors.push_back(tensor.clone());
    return tensors;
  }
  /// A row of what is bound by memory; `num_bytes` are read and written once.
  void bytes_row(const std::string& name, td::DType dtype, double num_bytes, const std::function<void(int call)>& f) {
    const double ms = time(f);
    report_.line({{"row", name}, {"dtype", td::to_string(dtype)}, {"ms", ms}, {"gb_per_s", num_bytes / ms / 1e6}});
  }
  void product_row(const std::string& name, td::DType dtype, int64_t m, int64_t n, int64_t k,
                   bool with_fastest = false);

  const Settings& settings_;
  tb::Report& report_;
  const td::Device gpu_ = td::Device::cuda();
};

const td::Tensor& in_turn(const std::vector<td::Tensor>& tensors, int call) {
  return tensors[static_cast<size_t>(call) % tensors.size()];
}

void Rows::copies() {
  const int64_t num_bytes = size(int64_t{1} << 30);
  const td::Tensor here = td::full({num_bytes}, 1, {td::kUInt8});
  const td::Tensor there = here.to(gpu_), other = td::empty_like(there);
  for (const bool to_gpu : {true, false}) {
    const double ms = time([&](int) { static_cast<void>(to_gpu ? here.to(gpu_) : there.cpu()); }, 3);
    report_.line({{"row", to_gpu ? "host to device" : "device to host"},
                  {"gb_per_s", static_cast<double>(num_bytes) / ms / 1e6},
                  {"raw_pageable_gb_per_s", tb::raw_copy(gpu_, num_bytes, to_gpu, false)},
                  {"raw_pinned_gb_per_s", tb::raw_copy(gpu_, num_bytes, to_gpu, true)}});
  }
  bytes_row("copy on device", td::kUInt8, 2.0 * static_cast<double>(num_bytes), [&](int) { other.copy_(there); });
}

void Rows::product_row(const std::string& name, td::DType dtype, int64_t m, int64_t n, int64_t k, bool with_fastest) {
  const td::NoGradGuard no_grad;
  const std::vector<td::Tensor> a = copies_of(td::randn({m, k}).to(gpu_).to(dtype));
  const std::vector<td::Tensor> b = copies_of(td::randn({n, k}).to(gpu_).to(dtype));
  const double ms = time([&](int i) { static_cast<void>(td::linear(in_turn(a, i), in_turn(b, i), {})); });
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  tb::Json line = {{"row", name}, {"dtype", td::to_string(dtype)}, {"m", m}, {"n", n}, {"k", k},
                   {"ms", ms},    {"tflops", flops / ms / 1e9}};
  const double fastest_ms = with_fastest ? tb::fastest_product(a, b, [this](const auto& f) { return time(f); }) : 0;
  if (fastest_ms > 0) line["fastest_ms"] = fastest_ms;
  report_.line(std::move(line));
}

void Rows::products() {
  const int64_t n = size(8192);
  product_row("product", td::kBFloat16, n, n, n, true);
  product_row("product", td::kFloat32, n, n, n, true);
  // GPT-2's, of batches of 4 and 64.
  for (const int64_t batch : {4, 64}) {
    const int64_t rows = size(batch * 1024), width = size(768), vocabulary = size(50304);
    product_row("product qkv", td::kBFloat16, rows, 3 * width, width);
    product_row("product proj", td::kBFloat16, rows, width, width);
    product_row("product fc", td::kBFloat16, rows, 4 * width, width);
    product_row("product fc proj", td::kBFloat16, rows, width, 4 * width);
    product_row("product head", td::kBFloat16, rows, vocabulary, width);
  }
}

void Rows::kernels() {
  const int64_t rows = size(64 * 1024), width = size(768), vocabulary = size(50304);
  for (const td::DType dtype : {td::kFloat32, td::kBFloat16}) {
    const auto tensor = [&](const td::Shape& shape) { return td::randn(shape).to(gpu_).to(dtype); };
    const std::vector<td::Tensor> x = copies_of(tensor({rows, width})), grad = copies_of(tensor({rows, width}));
    const auto num_bytes = static_cast<double>(x.front().num_bytes());
    const td::Tensor weight = td::ones({width}, options(td::kFloat32)).set_requires_grad();
    const td::Tensor bias = td::zeros({width}, options(td::kFloat32)).set_requires_grad();
    {
      const td::NoGradGuard no_grad;
      bytes_row("softmax", dtype, 2 * num_bytes, [&](int i) { static_cast<void>(td::softmax(in_turn(x, i), 1)); });
      bytes_row("relu", dtype, 2 * num_bytes, [&](int i) { static_cast<void>(td::relu(in_turn(x, i))); });
      bytes_row("add", dtype, 3 * num_bytes, [&](int i) { static_cast<void>(in_turn(x, i) + in_turn(grad, i)); });
      bytes_row("sum", dtype, num_bytes, [&](int i) { static_cast<void>(in_turn(x, i).sum()); });
    }
    if (dtype != td::kFloat32) continue;
    bytes_row("layer_norm", dtype, 2 * num_bytes, [&](int i) {
      const td::NoGradGuard no_grad;
      static_cast<void>(td::layer_norm(in_turn(x, i), {width}, weight, bias));
    });
    bytes_row("layer_norm with backward", dtype, 5 * num_bytes, [&](int i) {
      const td::Tensor input = in_turn(x, i).detach().set_requires_grad();
      const std::vector<td::Tensor> inputs = {input, weight, bias}, gradients = {in_turn(grad, i)};
      const std::vector<td::Tensor> outputs = {td::layer_norm(input, {width}, weight, bias)};
      static_cast<void>(td::grad(outputs, inputs, gradients));
    });
    const td::Tensor logits = tensor({size(8192), vocabulary}).set_requires_grad();
    const td::Tensor labels = td::randint(0, vocabulary, {size(8192)}).to(gpu_);
    const std::vector<td::Tensor> leaves = {logits};
    bytes_row("cross_entropy with backward", dtype, 3.0 * static_cast<double>(logits.num_bytes()), [&](int) {
      const std::vector<td::Tensor> losses = {td::cross_entropy(logits, labels)};
      static_cast<void>(td::grad(losses, leaves));
    });
  }
  std::vector<td::Tensor> parameters;
  for (int i = 0; i < 12; ++i) {
    for (const td::Shape& shape :
         {td::Shape{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}, {width}}) {
      parameters.push_back(td::randn(shape).to(gpu_).set_requires_grad());
    }
  }
  td::Tensor sum = td::zeros({}, options(td::kFloat32));
  double num_bytes = 0;
  for (const td::Tensor& parameter : parameters) {
    sum = sum + parameter.sum();
    num_bytes += static_cast<double>(parameter.num_bytes());
  }
  sum.backward();
  td::optim::AdamW adamw(parameters, {.lr = 1e-4});
  bytes_row("adamw", td::kFloat32, 7 * num_bytes, [&](int) { adamw.step(); });
  bytes_row("clip_grad_norm_", td::kFloat32, num_bytes, [&](int) { td::optim::clip_grad_norm_(parameters, 1e9); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times copies, products and kernels of a GPU");
  Settings s;
  app.add_option("--json", s.json, "append the lines to this file too");
  app.add_option("--divisor", s.divisor, "of all sizes, to see whether it runs")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", s.rounds, "of which the median counts")->check(CLI::Range(1, 1000));
  app.add_flag("--properties", s.properties, "print what the GPU is, as one JSON object, and do no more");
  try {
    app.parse(argc, argv);
    if (s.properties) {
      std::cout << tb::gpu_properties(td::Device::cuda()).dump() << "\n";
      return 0;
    }
    tb::Report report(s.json);
    Rows rows(s, report);
    rows.copies();
    rows.products();
    rows.kernels();
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
