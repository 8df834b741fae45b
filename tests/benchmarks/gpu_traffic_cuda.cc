// The memory traffic of operations on a GPU, counted by the emulation (tests/cuda_emulation), compared with budgets.
#include <cstdio>
#include <iostream>

#include <cuda_emulation/control.h>

#include <tandem/models/gpt2.h>
#include <tandem/tandem.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing { namespace {

using cuda_emulation::KernelTraffic;

const Device kGpu("cuda");

// docs/gpu_performance.md has the same table and explains its columns.
constexpr char kTable[] = R"(
| operation | launches | blocks | bytes per access | sectors per request | traffic / least | bytes per element | wavefronts / least |
|---|---|---|---|---|---|---|---|
| fill, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 4.00 | |
| add, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 12.00 | |
| add_into, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 12.00 | |
| gelu, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 8.00 | |
| gelu backward, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 12.00 | |
| fill, bfloat16 | 1 | 96 | 16.00 | 16.00 | 1.00 | 2.00 | |
| add, bfloat16 | 1 | 96 | 16.00 | 16.00 | 1.00 | 6.00 | |
| add_into, bfloat16 | 1 | 96 | 16.00 | 16.00 | 1.00 | 6.00 | |
| gelu, bfloat16 | 1 | 96 | 16.00 | 16.00 | 1.00 | 4.00 | |
| gelu backward, bfloat16 | 1 | 96 | 16.00 | 16.00 | 1.00 | 6.00 | |
| cast, float32 to bfloat16 | 1 | 192 | 12.00 | 12.00 | 1.00 | 6.00 | |
| cast, bfloat16 to float32 | 1 | 192 | 12.00 | 12.00 | 1.00 | 6.00 | |
| cast, channels-last | 1 | 192 | 12.00 | 12.00 | 1.00 | 6.00 | |
| copy, transposed | 1 | 768 | 4.00 | 18.00 | 4.50 | 36.00 | |
| copy, every other column | 1 | 384 | 4.00 | 6.00 | 1.00 | 6.00 | |
| sum | 2 | 6 | 16.00 | 15.92 | 1.00 | 4.00 | 1.00 |
| sum of rows | 1 | 256 | 15.94 | 13.86 | 1.01 | 4.04 | 1.00 |
| sum of columns | 1 | 24 | 4.00 | 4.00 | 1.00 | 4.02 | 1.00 |
| max | 2 | 3 | 4.00 | 4.00 | 1.00 | 4.00 | 1.00 |
| max of rows | 1 | 256 | 4.01 | 3.67 | 1.03 | 4.12 | 1.00 |
| relu, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 8.00 | |
| relu backward, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 12.00 | |
| softmax, float32 | 1 | 64 | 16.00 | 16.00 | 1.00 | 8.00 | |
| softmax backward, float32 | 1 | 64 | 16.00 | 16.00 | 1.00 | 12.00 | |
| dropout, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 8.00 | |
| dropout backward, float32 | 1 | 192 | 16.00 | 16.00 | 1.00 | 8.00 | |
| embedding, float32 | 2 | 64 | 13.31 | 10.98 | 1.24 | 8.28 | |
| embedding backward, float32 | 5 | 64 | 11.02 | 6.96 | 1.12 | 9.46 | 1.00 |
| batch_norm, float32 | 3 | 64 | 4.01 | 3.69 | 1.02 | 12.34 | 1.00 |
| batch_norm backward, float32 | 3 | 64 | 4.01 | 3.77 | 1.02 | 20.42 | 1.00 |
| max_pool2d, float32 | 1 | 64 | 3.50 | 6.17 | 1.76 | 9.25 | |
| max_pool2d backward, float32 | 1 | 256 | 3.00 | 2.00 | 1.14 | 6.00 | |
| im2col, float64 | 1 | 144 | 8.00 | 7.69 | 1.73 | 138.12 | |
| clip_grad_norm_ | 3 | 12 | 15.84 | 15.65 | 1.00 | 12.02 | 1.00 |
| SGD with momentum | 1 | 12 | 4.00 | 4.00 | 1.00 | 20.00 | |
| AdamW | 1 | 12 | 4.00 | 4.00 | 1.00 | 28.00 | |
| cross_entropy, float32 | 3 | 64 | 13.65 | 10.63 | 1.03 | 4.14 | 1.00 |
| cross_entropy backward, float32 | 1 | 64 | 10.35 | 8.35 | 1.06 | 8.51 | |
| layer_norm, float32 | 1 | 32 | 15.95 | 14.33 | 2.00 | 16.12 | |
| layer_norm backward, float32 | 2 | 16 | 10.82 | 10.06 | 1.06 | 14.94 | 1.00 |
| bias gradient, float32 | 2 | 48 | 15.49 | 16.19 | 1.05 | 4.32 | 1.00 |
| attention, float32 | 1 | 4 | 4.00 | 5.75 | 2.14 | 11.50 | 1.04 |
| attention backward, float32 | 3 | 4 | 4.00 | 5.54 | 2.52 | 44.08 | 1.04 |
| cross_entropy, bfloat16 | 3 | 64 | 14.56 | 11.12 | 1.03 | 2.06 | 1.00 |
| cross_entropy backward, bfloat16 | 2 | 64 | 12.22 | 10.79 | 1.03 | 4.13 | |
| layer_norm, bfloat16 | 1 | 32 | 15.91 | 13.00 | 2.01 | 8.12 | |
| layer_norm backward, bfloat16 | 2 | 16 | 8.94 | 8.83 | 1.20 | 9.66 | 1.00 |
| bias gradient, bfloat16 | 2 | 24 | 15.02 | 16.34 | 1.09 | 2.31 | 1.00 |
| linear_gelu, bfloat16 | 0 | 0 | | | | 0.00 | |
| linear_gelu backward, bfloat16 | 2 | 24 | 15.61 | 16.09 | 1.03 | 6.32 | 1.00 |
| attention, bfloat16 | 0 | 0 | | | | 0.00 | |
| attention backward, bfloat16 | 0 | 0 | | | | 0.00 | |
| batch_norm_add_relu, bfloat16 | 3 | 8 | 12.70 | 11.58 | 1.04 | 8.59 | 1.21 |
| batch_norm_add_relu backward, bfloat16 | 3 | 8 | 13.57 | 12.49 | 1.03 | 12.69 | 1.52 |
| GPT block, float32 | 5 | 64 | 10.75 | 10.13 | 1.35 | 114.00 | 1.04 |
| GPT block backward, float32 | 14 | 4 | 7.61 | 8.65 | 1.31 | 247.00 | 1.04 |
| GPT block, autocast to bfloat16 | 11 | 64 | 12.50 | 10.93 | 1.17 | 117.92 | |
| GPT block backward, autocast to bfloat16 | 12 | 2 | 12.05 | 11.54 | 1.04 | 98.62 | 1.00 |
)";

struct Operation {
  std::string name;
  int64_t elements;  // of its largest tensor
  std::function<void()> run;
  std::function<void()> before = [] {};  // runs first and is not counted
  std::string kernels = "";              // counts only kernels whose name contains this
};

class Operations {
 public:
  void add(const std::string& name, const Tensor& largest, std::function<void()> run) {
    list.push_back({.name = name, .elements = largest.numel(), .run = std::move(run)});
  }
  void add_backward(const std::string& name, const Tensor& largest, const std::shared_ptr<Tensor>& result) {
    const auto gradient = std::make_shared<Tensor>();
    add(name, largest, [=] { result->backward(*gradient); });
    list.back().before = [=] { *gradient = ones_like(*result); };
  }
  /// The operation f and its backward. The leaves of f have no gradients yet, so none are added.
  void add_differentiable(const std::string& name, const std::string& variant, const Tensor& largest,
                          const std::function<Tensor()>& f) {
    const auto result = std::make_shared<Tensor>();
    add(name + ", " + variant, largest, [=] { *result = f(); });
    add_backward(name + " backward, " + variant, largest, result);
  }
  std::vector<Operation> list;
};

Tensor leaf(const Shape& shape, DType dtype = kFloat32, bool requires_grad = true) {
  Tensor tensor = randn(shape).to(kGpu).to(dtype);
  tensor.requires_grad_(requires_grad);
  return tensor;
}

Tensor integers(int64_t high, const Shape& shape) { return randint(0, high, shape).to(kGpu); }

void add_elementwise(Operations& operations, const Shape& shape, DType dtype, const std::string& type) {
  const Tensor x = leaf(shape, dtype, false), y = leaf(shape, dtype, false), z = leaf(shape, dtype);
  operations.add("fill, " + type, x, [=] { primitives::fill(y, 1.0); });
  operations.add("add, " + type, x, [=] { x + y; });
  operations.add("add_into, " + type, x, [=] { primitives::add_into(x, y); });
  operations.add_differentiable("gelu", type, z, [=] { return gelu(z, GeluApproximation::kTanh); });
}

void add_rows(Operations& operations, DType dtype, const std::string& type) {
  const Tensor logits = leaf({64, 5024}, dtype), labels = integers(5024, {64});
  operations.add_differentiable("cross_entropy", type, logits, [=] { return cross_entropy(logits, labels); });
  const Tensor x = leaf({128, 768}, dtype), weight = leaf({768}, dtype), bias = leaf({768}, dtype);
  operations.add_differentiable("layer_norm", type, x, [=] { return layer_norm(x, {768}, weight, bias); });
  const Tensor input = leaf({1024, 8}, dtype, false), matrix = leaf({768, 8}, dtype, false);
  const Tensor shift = leaf({768}, dtype);
  const auto result = std::make_shared<Tensor>(linear(input, matrix, shift));
  operations.add_backward("bias gradient, " + type, *result, result);
  if (dtype == kBFloat16) {
    const Tensor trained = leaf({768, 8}, dtype);
    operations.add_differentiable("linear_gelu", type, *result,
                                  [=] { return linear_gelu(input, trained, shift, GeluApproximation::kTanh); });
  }
  const Tensor qkv = leaf({1, 128, 3 * 2 * 64}, dtype);
  operations.add_differentiable("attention", type, qkv, [=] { return qkv_attention(qkv, 2, {.is_causal = true}); });
}

/// The end of a residual block, with channels-last memory.
void add_residual_norm(Operations& operations) {
  const Tensor image = leaf({8, 16, 16, 64}, kBFloat16), residual = leaf({8, 16, 16, 64}, kBFloat16);
  const Tensor weight = leaf({64}), bias = leaf({64});
  operations.add_differentiable("batch_norm_add_relu", "bfloat16", image, [=] {
    const auto nchw = [](const Tensor& nhwc) { return nhwc.permute({0, 3, 1, 2}); };
    return batch_norm_add_relu(nchw(image), nchw(residual), {}, {}, weight, bias, true).permute({0, 2, 3, 1});
  });
}

void add_float32(Operations& operations) {
  const Tensor x = leaf({256, 768}, kFloat32, false), half = leaf({256, 768}, kBFloat16, false);
  operations.add("cast, float32 to bfloat16", x, [=] { x.to(kBFloat16); });
  operations.add("cast, bfloat16 to float32", x, [=] { half.to(kFloat32); });
  const Tensor channels_last = half.view({2, 8, 16, 768}).permute({0, 3, 1, 2});
  operations.add("cast, channels-last", x, [=] { channels_last.to(kFloat32); });
  operations.add("copy, transposed", x, [=] { x.transpose(0, 1).contiguous(); });
  operations.add("copy, every other column", x, [=] { x.slice(1, 0, 768, 2).contiguous(); });
  operations.add("sum", x, [=] { sum(x); });
  operations.add("sum of rows", x, [=] { sum(x, {1}); });
  operations.add("sum of columns", x, [=] { sum(x, {0}); });
  operations.add("max", x, [=] { max(x); });
  operations.add("max of rows", x, [=] { max(x, 1); });
  const Tensor a = leaf({256, 768}), b = leaf({256, 768}), c = leaf({256, 768});
  operations.add_differentiable("relu", "float32", a, [=] { return relu(a); });
  operations.add_differentiable("softmax", "float32", b, [=] { return softmax(b, 1); });
  operations.add_differentiable("dropout", "float32", c, [=] { return dropout(c, 0.1); });

  const Tensor indices = integers(256, {256}), table = leaf({256, 256});
  operations.add_differentiable("embedding", "float32", table, [=] { return embedding(indices, table); });
  const Tensor image = leaf({8, 32, 16, 16}), weight = leaf({32}), bias = leaf({32});
  const Tensor mean = zeros({32}, {kFloat32, kGpu}), variance = ones({32}, {kFloat32, kGpu});
  operations.add_differentiable("batch_norm", "float32", image,
                                [=] { return batch_norm(image, mean, variance, weight, bias, true); });
  const Tensor pooled = leaf({8, 32, 16, 16});
  operations.add_differentiable("max_pool2d", "float32", pooled, [=] { return max_pool2d(pooled, 2); });
  const Tensor exact = leaf({2, 8, 16, 16}, kFloat64, false), filter = leaf({8, 8, 3, 3}, kFloat64, false);
  operations.add("im2col, float64", exact, [=] { conv2d(exact, filter, {}, {.padding = 1}); });
  operations.list.back().kernels = "im2col";

  const Tensor parameter = leaf({256, 768});
  parameter.set_grad(x);
  operations.add("clip_grad_norm_", x, [=] { optim::clip_grad_norm_({parameter}, 1); });
  // The first step also initializes the state.
  const auto sgd = std::make_shared<optim::SGD>(std::vector{parameter}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  sgd->step();
  operations.add("SGD with momentum", x, [=] { sgd->step(); });
  const auto adamw = std::make_shared<optim::AdamW>(std::vector{parameter}, optim::AdamWOptions{});
  adamw->step();
  operations.add("AdamW", x, [=] { adamw->step(); });
}

/// A block of GPT-2.
void add_gpt_block(Operations& operations) {
  const models::Gpt2Config config{.n_embd = 128, .n_head = 2, .resid_pdrop = 0, .attn_pdrop = 0};
  for (const bool bfloat16 : {false, true}) {
    const auto block = std::make_shared<models::Gpt2Block>(config);
    block->to(kGpu);
    const Tensor x = leaf({2, 64, 128});
    operations.add_differentiable("GPT block", bfloat16 ? "autocast to bfloat16" : "float32", x, [=] {
      std::optional<Autocast> autocast;
      if (bfloat16) autocast.emplace(kBFloat16);
      return (*block)(x);
    });
  }
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

std::string ratio(int64_t a, int64_t b) {
  return b == 0 ? "" : number(static_cast<double>(a) / static_cast<double>(b));
}

/// The row of the table. Without the own kernel of matrix products, which cuBLASLt computes on a GPU.
std::vector<std::string> measure(const Operation& operation) {
  operation.before();
  cuda::synchronize(kGpu);
  cuda_emulation::start_counting();
  operation.run();
  cuda::synchronize(kGpu);
  KernelTraffic sum;
  int64_t most = -1, blocks = 0;
  for (const KernelTraffic& launch : cuda_emulation::stop_counting()) {
    if (launch.kernel.starts_with("gemm_kernel") || launch.kernel.find(operation.kernels) == std::string::npos)
      continue;
    sum.add(launch);
    if (launch.traffic_bytes() > most) {
      most = launch.traffic_bytes();
      blocks = launch.blocks;
    }
  }
  int64_t accesses = 0;
  for (const int64_t n : sum.widths) accesses += n;
  return {operation.name,
          std::to_string(sum.launches),
          std::to_string(blocks),
          ratio(sum.reads.bytes + sum.writes.bytes, accesses),
          ratio(sum.reads.sectors + sum.writes.sectors, sum.reads.requests + sum.writes.requests),
          ratio(sum.traffic_bytes(), sum.least_bytes()),
          ratio(sum.traffic_bytes(), operation.elements),
          ratio(sum.wavefronts, sum.least_wavefronts)};
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line.substr(1));
  for (std::string cell; std::getline(text, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') - begin + 1));
  }
  return cells;
}

/// Budgets of the table by operation, and its column names.
std::map<std::string, std::vector<std::string>> budgets() {
  std::map<std::string, std::vector<std::string>> rows;
  std::istringstream lines(kTable);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    std::vector<std::string> cells = cells_of(line);
    rows[cells[0]] = std::move(cells);
  }
  return rows;
}

/// Launches and blocks are exact; other figures may be 2 % above their budget and 5 % below it.
bool is_within(const std::string& measured, const std::string& budget, bool exact) {
  if (exact || measured.empty() || budget.empty()) return measured == budget;
  const double a = std::stod(measured), b = std::stod(budget);
  return a <= b * 1.02 && a >= b * 0.95;
}

TEST(GpuTraffic, OperationsMatchTheirBudgets) {
  set_num_threads(1);
  manual_seed(1);
  Operations operations;
  add_elementwise(operations, {256, 768}, kFloat32, "float32");
  add_elementwise(operations, {256, 768}, kBFloat16, "bfloat16");
  add_float32(operations);
  add_rows(operations, kFloat32, "float32");
  add_rows(operations, kBFloat16, "bfloat16");
  add_residual_norm(operations);
  add_gpt_block(operations);

  const std::map<std::string, std::vector<std::string>> expected = budgets();
  const std::vector<std::string>& columns = expected.at("operation");
  std::istringstream header(kTable);
  std::string table, line;
  for (int i = 0; i < 3; ++i) {
    std::getline(header, line);
    table += line + "\n";
  }
  for (const Operation& operation : operations.list) {
    const std::vector<std::string> row = measure(operation);
    const auto found = expected.find(operation.name);
    for (size_t i = 1; i < row.size(); ++i) {
      const std::string budget = found == expected.end() ? "none" : found->second[i];
      if (found != expected.end() && is_within(row[i], budget, i <= 2)) continue;
      ADD_FAILURE() << operation.name << ": " << columns[i] << " is " << row[i] << ", its budget " << budget;
    }
    table += "|";
    for (const std::string& cell : row) table += " " + cell + (cell.empty() ? "|" : " |");
    table += "\n";
  }
  EXPECT_EQ(expected.size(), operations.list.size() + 2) << "rows without an operation";
  std::cout << table;
}

TEST(GpuTraffic, DocumentHasTheTable) {
  std::ifstream file("docs/gpu_performance.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(kTable), std::string::npos) << "copy the table of this test into docs/gpu_performance.md";
}

}}  // namespace tandem::testing
