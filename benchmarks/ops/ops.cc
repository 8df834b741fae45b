// Times single operations on one thread: forward, and forward with backward, relative to the limits of the core. The
// cases are defined in tests/ops/*_cases.cc.
//
//     ./bazelw run //benchmarks/ops -- --filter conv2d,max_pool
//     ./bazelw run //benchmarks/ops -- --python PYTHON_WITH_TORCH
//
// With --python it compares the cases that have an expression for PyTorch with it, on equal inputs. The two take turns,
// and the fastest call of each counts; a ratio is PyTorch's time divided by tandem's.
//
// "roofline" is the shortest possible time divided by the measured time. The shortest possible time is the larger of
// flops divided by the peak rate of multiply-adds and bytes divided by the rate of copying a block of that size (a
// small block stays in a cache).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>

#include <tandem/benchmarks/ops/torch_ops.h>
#include <tandem/benchmarks/support/peak.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::benchmarks { namespace {

double num_bytes(const Tensor& t) { return t.defined() ? static_cast<double>(t.numel() * size_of(t.dtype())) : 0; }

std::string shapes_of(const TensorList& tensors) {
  std::string text;
  for (const Tensor& t : tensors) {
    if (!text.empty()) text += ' ';
    text += t.defined() ? to_string(t.shape()) : "-";
    if (t.defined() && t.dtype() != kFloat32) text += str(' ', t.dtype());
  }
  return text;
}

/// Milliseconds of the fastest call; calls are repeated for `seconds`, at least five times.
double min_ms(const std::function<void()>& f, double seconds) {
  using Clock = std::chrono::steady_clock;
  f();
  const auto begin = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  for (int runs = 0; runs < 5 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds; ++runs) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

struct Peaks {
  double gflops;
  std::map<int64_t, double> copies;  // key: bytes, rounded up to a power of two; value: GB/s

  double copy(double bytes) {
    int64_t size = 1 << 12;
    while (size < static_cast<int64_t>(bytes) && size < (1 << 28)) size *= 2;
    double& rate = copies[size];
    if (rate == 0) rate = copy_gb_per_s(size);
    return rate;
  }
};

void put(Json& line, const std::string& phase, double ms, double flops, double bytes, Peaks& peaks) {
  const double bound_ms = std::max(flops / peaks.gflops, bytes / peaks.copy(bytes)) * 1e-6;
  line[phase + "_ms"] = ms;
  line[phase + "_gflops"] = flops / ms * 1e-6;
  line[phase + "_gb_per_s"] = bytes / ms * 1e-6;
  line[phase + "_roofline"] = bound_ms / ms;
}

/// A case with its inputs, ready to run.
struct Call {
  explicit Call(const testing::Benchmark& benchmark) : row(benchmark) {
    manual_seed(1);
    inputs = row.inputs();
    for (Tensor& t : inputs) {
      if (row.cost.backward && t.defined() && is_floating_point(t.dtype())) t.requires_grad_();
    }
    out = row.run(inputs).detach();
    if (row.cost.backward) cotangent = randn(out.shape()).to(out.dtype());
  }

  void forward() const { row.run(inputs); }
  void both() const {
    for (const Tensor& t : inputs) {
      if (t.defined()) t.zero_grad();
    }
    row.run(inputs).backward(cotangent);
  }

  const testing::Benchmark& row;
  TensorList inputs;
  Tensor out, cotangent;
};

void run(const testing::Benchmark& row, double seconds, Peaks& peaks, Report& report) {
  const Call call(row);
  double in_bytes = 0, grad_bytes = 0;
  for (const Tensor& t : call.inputs) {
    in_bytes += num_bytes(t);
    if (t.requires_grad()) grad_bytes += num_bytes(t);
  }
  const double bytes = row.cost.bytes != 0 ? row.cost.bytes : in_bytes + num_bytes(call.out);
  Json line = {{"op", row.name}, {"shapes", shapes_of(call.inputs)}};
  put(line, "forward", min_ms([&] { call.forward(); }, seconds), row.cost.flops, bytes, peaks);
  if (row.cost.backward) {
    const double backward_bytes =
        row.cost.backward_bytes != 0 ? row.cost.backward_bytes : in_bytes + grad_bytes + num_bytes(call.out);
    put(line, "both", min_ms([&] { call.both(); }, seconds), 3 * row.cost.flops, bytes + backward_bytes, peaks);
  }
  report.line(std::move(line));
}

/// Prints comparisons with PyTorch as a Markdown table, and their summary.
class Comparison {
 public:
  explicit Comparison(const std::string& python) : torch_(python) {
    std::cout << "PyTorch " << torch_.version()
              << "; milliseconds of tandem, of PyTorch, and their ratio\n\n"
                 "| operation | inputs | forward | with backward |\n|---|---|---|---|\n";
  }

  void run(const testing::Benchmark& row, double seconds) {
    const Call call(row);
    torch_.set_call(row.torch, call.inputs);
    std::string line = str("| ", row.name, " | ", shapes_of(call.inputs), " | ");
    line += measure(row.name, false, seconds, [&] { call.forward(); }) + " | ";
    if (row.cost.backward) line += measure(row.name + ", with backward", true, seconds, [&] { call.both(); });
    std::cout << line << " |" << std::endl;
    ++rows_;
  }

  ~Comparison() {
    if (rows_ == 0) return;
    std::cout << "\n"
              << rows_ << " rows, " << count_ << " ratios; geometric mean " << std::exp(log_sum_ / count_)
              << "; below 1: " << slower_.size() << "\n";
    for (const std::string& line : slower_) std::cout << line << "\n";
  }

 private:
  std::string measure(const std::string& name, bool both, double seconds, const std::function<void()>& f) {
    double tandem = std::numeric_limits<double>::infinity(), torch = tandem;
    for (int round = 0; round < kRounds; ++round) {
      tandem = std::min(tandem, min_ms(f, seconds / kRounds));
      torch = std::min(torch, torch_.min_ms(both, seconds / kRounds));
    }
    const double ratio = torch / tandem;
    ++count_;
    log_sum_ += std::log(ratio);
    char text[64];
    snprintf(text, sizeof text, "%.3f, %.3f: **%.2f**", tandem, torch, ratio);
    if (ratio < 1) slower_.push_back(str("  ", name, ": ", text));
    return text;
  }

  static constexpr int kRounds = 3;
  TorchOps torch_;
  int rows_ = 0;
  int count_ = 0;
  double log_sum_ = 0;
  std::vector<std::string> slower_;
};

/// Rows with one of the texts in their names; all if there are none. Throws ValueError if no row is left.
std::vector<testing::Benchmark> rows(const std::vector<std::string>& filters, bool with_torch) {
  std::vector<testing::Benchmark> selected;
  for (const testing::Benchmark& row : testing::op_cases().benchmarks) {
    if (with_torch && row.torch.empty()) continue;
    const auto in_name = [&](const std::string& filter) { return row.name.find(filter) != std::string::npos; };
    if (filters.empty() || std::any_of(filters.begin(), filters.end(), in_name)) selected.push_back(row);
  }
  TANDEM_CHECK(ValueError, !selected.empty(), "--filter: no row's name contains '",
               CLI::detail::join(filters, "' or '"), "'");
  return selected;
}

}}  // namespace tandem::benchmarks

int main(int argc, char** argv) {
  namespace tb = tandem::benchmarks;
  CLI::App app("Times single operations on one thread");
  std::vector<std::string> filters;
  std::string json, python;
  double seconds = 0.2;
  app.add_option("--filter", filters, "run the cases whose name contains one of these texts, separated by commas")
      ->delimiter(',');
  app.add_option("--seconds", seconds, "duration of each of the two measurements of a case")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--json", json, "also append the lines to this file");
  app.add_option("--python", python, "compare with PyTorch in this interpreter");
  return tb::run_program(app, argc, argv, [&] {
    tandem::set_num_threads(1);
    if (!python.empty()) {
      const auto selected = tb::rows(filters, /*with_torch=*/true);
      tb::Comparison comparison(python);
      for (const tandem::testing::Benchmark& row : selected) comparison.run(row, seconds);
      return;
    }
    tb::Report report(json);
    tb::Peaks peaks{tb::fma_peak_gflops(), {}};
    for (const tandem::testing::Benchmark& row : tb::rows(filters, /*with_torch=*/false)) {
      tb::run(row, seconds, peaks, report);
    }
  });
}
