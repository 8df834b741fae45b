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

/// The lines of the table in docs/gpu_performance.md, which has the budgets and explains its columns.
std::vector<std::string> document_table() {
  std::ifstream file("docs/gpu_performance.md");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(lines.empty() ? "| operation | launches |" : "|")) {
      lines.push_back(line);
    } else if (!lines.empty()) {
      break;
    }
  }
  return lines;
}

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
std::map<std::string, std::vector<std::string>> budgets(const std::vector<std::string>& table) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const std::string& line : table) {
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

  const std::vector<std::string> lines = document_table();
  ASSERT_GT(lines.size(), 2u) << "docs/gpu_performance.md has no table of operations";
  const std::map<std::string, std::vector<std::string>> expected = budgets(lines);
  const std::vector<std::string>& columns = expected.at("operation");
  std::string table = lines[0] + "\n" + lines[1] + "\n";
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

}}  // namespace tandem::testing
