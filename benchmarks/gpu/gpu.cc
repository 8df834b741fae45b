// Times copies, matrix products and kernels of one GPU, next to their bounds: copies with cudaMemcpyAsync, products
// with cuBLASLt's fastest algorithm, kernels in GB/s of the bytes that they must read and write. Successive calls use
// different copies of their inputs, several times the L2 cache in total, so that they read memory.
//
//     ./bazelw run --config=cuda //benchmarks/gpu
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/benchmarks/gpu/baseline.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>

namespace {

namespace td = tandem;
namespace tb = tandem::benchmarks;

struct Settings {
  std::string json;
  int64_t divisor = 1;  // divides all sizes
  int rounds = 7;
  bool properties = false;
};

/// The benchmarks of one GPU; each prints one JSON line.
class GpuBenchmark {
 public:
  GpuBenchmark(const Settings& settings, tb::Report& report) : settings_(settings), report_(report) {}

  void copies();
  void matmuls();
  void kernels();

 private:
  int64_t size(int64_t full_size) const { return std::max<int64_t>(1, full_size / settings_.divisor); }
  td::TensorOptions options(td::DType dtype) const { return {dtype, gpu_}; }

  /// Milliseconds per call of f when `calls` calls are enqueued without waiting in between.
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
  /// `tensor` and copies of it, more than the L2 cache holds.
  std::vector<td::Tensor> copies_of(const td::Tensor& tensor) const {
    constexpr int64_t kL2Multiple = 6, kMaxCopies = 64;
    const int64_t bytes = kL2Multiple * td::cuda::device_properties(gpu_).l2_bytes;
    std::vector<td::Tensor> tensors = {tensor};
    for (int64_t i = std::min(kMaxCopies, bytes / tensor.num_bytes()); i > 0; --i) tensors.push_back(tensor.clone());
    return tensors;
  }
  /// Times a memory-bound operation; `num_bytes` is the sum of the bytes read and the bytes written.
  void time_kernel(const std::string& name, td::DType dtype, double num_bytes, const std::function<void(int call)>& f) {
    const double ms = time(f);
    report_.line({{"name", name}, {"dtype", td::to_string(dtype)}, {"ms", ms}, {"gb_per_s", num_bytes / ms / 1e6}});
  }
  void time_matmul(const std::string& name, td::DType dtype, int64_t m, int64_t n, int64_t k,
                   bool with_cublaslt = false);

  const Settings& settings_;
  tb::Report& report_;
  const td::Device gpu_ = td::Device::cuda();
};

const td::Tensor& nth(const std::vector<td::Tensor>& tensors, int call) {
  return tensors[static_cast<size_t>(call) % tensors.size()];
}

void GpuBenchmark::copies() {
  const int64_t num_bytes = size(int64_t{1} << 30);
  const td::Tensor host = td::full({num_bytes}, 1, {td::kUInt8});
  const td::Tensor device = host.to(gpu_), device_copy = td::empty_like(device);
  for (const bool to_gpu : {true, false}) {
    const double ms = time([&](int) { static_cast<void>(to_gpu ? host.to(gpu_) : device.cpu()); }, 3);
    report_.line({{"name", to_gpu ? "host to device" : "device to host"},
                  {"gb_per_s", static_cast<double>(num_bytes) / ms / 1e6},
                  {"memcpy_pageable_gb_per_s", tb::memcpy_gb_per_s(gpu_, num_bytes, to_gpu, false)},
                  {"memcpy_pinned_gb_per_s", tb::memcpy_gb_per_s(gpu_, num_bytes, to_gpu, true)}});
  }
  time_kernel("copy on device", td::kUInt8, 2.0 * static_cast<double>(num_bytes),
              [&](int) { device_copy.copy_(device); });
}

void GpuBenchmark::time_matmul(const std::string& name, td::DType dtype, int64_t m, int64_t n, int64_t k,
                               bool with_cublaslt) {
  const td::NoGradGuard no_grad;
  const std::vector<td::Tensor> a = copies_of(td::randn({m, k}).to(gpu_).to(dtype));
  const std::vector<td::Tensor> b = copies_of(td::randn({n, k}).to(gpu_).to(dtype));
  const double ms = time([&](int i) { static_cast<void>(td::linear(nth(a, i), nth(b, i), {})); });
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  tb::Json line = {{"name", name}, {"dtype", td::to_string(dtype)}, {"m", m}, {"n", n}, {"k", k},
                   {"ms", ms},     {"tflops", flops / ms / 1e9}};
  const double cublaslt_ms =
      with_cublaslt ? tb::fastest_cublaslt_ms(a, b, [this](const auto& f) { return time(f); }) : 0;
  if (cublaslt_ms > 0) line["cublaslt_ms"] = cublaslt_ms;
  report_.line(std::move(line));
}

void GpuBenchmark::matmuls() {
  const int64_t n = size(8192);
  time_matmul("matmul", td::kBFloat16, n, n, n, true);
  time_matmul("matmul", td::kFloat32, n, n, n, true);
  // The shapes of GPT-2 for batch sizes 4 and 64.
  for (const int64_t batch : {4, 64}) {
    const int64_t rows = size(batch * 1024), width = size(768), vocabulary = size(50304);
    time_matmul("matmul qkv", td::kBFloat16, rows, 3 * width, width);
    time_matmul("matmul proj", td::kBFloat16, rows, width, width);
    time_matmul("matmul fc", td::kBFloat16, rows, 4 * width, width);
    time_matmul("matmul fc proj", td::kBFloat16, rows, width, 4 * width);
    time_matmul("matmul head", td::kBFloat16, rows, vocabulary, width);
  }
}

void GpuBenchmark::kernels() {
  const int64_t rows = size(64 * 1024), width = size(768), vocabulary = size(50304);
  for (const td::DType dtype : {td::kFloat32, td::kBFloat16}) {
    const auto tensor = [&](const td::Shape& shape) { return td::randn(shape).to(gpu_).to(dtype); };
    const std::vector<td::Tensor> x = copies_of(tensor({rows, width})), grad = copies_of(tensor({rows, width}));
    const auto num_bytes = static_cast<double>(x.front().num_bytes());
    const td::Tensor weight = td::ones({width}, options(td::kFloat32)).requires_grad_();
    const td::Tensor bias = td::zeros({width}, options(td::kFloat32)).requires_grad_();
    {
      const td::NoGradGuard no_grad;
      time_kernel("softmax", dtype, 2 * num_bytes, [&](int i) { static_cast<void>(td::softmax(nth(x, i), 1)); });
      time_kernel("relu", dtype, 2 * num_bytes, [&](int i) { static_cast<void>(td::relu(nth(x, i))); });
      time_kernel("add", dtype, 3 * num_bytes, [&](int i) { static_cast<void>(nth(x, i) + nth(grad, i)); });
      time_kernel("sum", dtype, num_bytes, [&](int i) { static_cast<void>(nth(x, i).sum()); });
    }
    if (dtype != td::kFloat32) continue;
    time_kernel("layer_norm", dtype, 2 * num_bytes, [&](int i) {
      const td::NoGradGuard no_grad;
      static_cast<void>(td::layer_norm(nth(x, i), {width}, weight, bias));
    });
    time_kernel("layer_norm with backward", dtype, 5 * num_bytes, [&](int i) {
      const td::Tensor input = nth(x, i).detach().requires_grad_();
      const std::vector<td::Tensor> inputs = {input, weight, bias}, gradients = {nth(grad, i)};
      const std::vector<td::Tensor> outputs = {td::layer_norm(input, {width}, weight, bias)};
      static_cast<void>(td::grad(outputs, inputs, gradients));
    });
    const td::Tensor logits = tensor({size(8192), vocabulary}).requires_grad_();
    const td::Tensor labels = td::randint(0, vocabulary, {size(8192)}).to(gpu_);
    const std::vector<td::Tensor> leaves = {logits};
    time_kernel("cross_entropy with backward", dtype, 3.0 * static_cast<double>(logits.num_bytes()), [&](int) {
      const std::vector<td::Tensor> losses = {td::cross_entropy(logits, labels)};
      static_cast<void>(td::grad(losses, leaves));
    });
  }
  std::vector<td::Tensor> parameters;
  for (int i = 0; i < 12; ++i) {
    for (const td::Shape& shape :
         {td::Shape{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}, {width}}) {
      parameters.push_back(td::randn(shape).to(gpu_).requires_grad_());
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
  time_kernel("adamw", td::kFloat32, 7 * num_bytes, [&](int) { adamw.step(); });
  time_kernel("clip_grad_norm_", td::kFloat32, num_bytes, [&](int) { td::optim::clip_grad_norm_(parameters, 1e9); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times copies, matrix products and kernels of a GPU");
  Settings s;
  app.add_option("--json", s.json, "also append the lines to this file");
  app.add_option("--divisor", s.divisor, "divides all sizes, for a quick check that everything runs")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", s.rounds, "timed rounds; the median is reported")->check(CLI::Range(1, 1000));
  app.add_flag("--properties", s.properties, "print the GPU's properties as one JSON object and exit");
  return tb::run_program(app, argc, argv, [&] {
    if (s.properties) {
      std::cout << tb::gpu_properties(td::Device::cuda()).dump() << "\n";
      return;
    }
    tb::Report report(s.json);
    GpuBenchmark benchmark(s, report);
    benchmark.copies();
    benchmark.matmuls();
    benchmark.kernels();
  });
}
