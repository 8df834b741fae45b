// Times single operations on one thread: forward, and forward with backward, relative to the limits of the core. The
// cases are defined in tests/ops/*_cases.cc.
//
//     ./bazelw run //benchmarks/ops -- --filter conv2d,max_pool
//
// "roofline" is the shortest possible time divided by the measured time. The shortest possible time is the larger of
// flops divided by the peak rate of multiply-adds and bytes divided by the rate of copying a block of that size (a
// small block stays in a cache).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <map>

#include <tandem/benchmarks/support/peak.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::benchmarks { namespace {

double num_bytes(const Tensor& t) {
  return t.defined() ? static_cast<double>(t.num_elements() * size_of(t.dtype())) : 0;
}

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

void run(const testing::Benchmark& row, double seconds, Peaks& peaks, Report& report) {
  manual_seed(1);
  TensorList inputs = row.inputs();
  double in_bytes = 0, grad_bytes = 0;
  for (Tensor& t : inputs) {
    in_bytes += num_bytes(t);
    if (!row.cost.backward || !t.defined() || !is_floating_point(t.dtype())) continue;
    t.set_requires_grad();
    grad_bytes += num_bytes(t);
  }
  const Tensor out = row.run(inputs).detach();
  const double bytes = row.cost.bytes != 0 ? row.cost.bytes : in_bytes + num_bytes(out);
  Json line = {{"op", row.name}, {"shapes", shapes_of(inputs)}};
  put(line, "forward", min_ms([&] { row.run(inputs); }, seconds), row.cost.flops, bytes, peaks);
  if (row.cost.backward) {
    const Tensor cotangent = randn(out.shape()).to(out.dtype());
    const double backward_bytes =
        row.cost.backward_bytes != 0 ? row.cost.backward_bytes : in_bytes + grad_bytes + num_bytes(out);
    const auto both = [&] {
      for (const Tensor& t : inputs) {
        if (t.defined()) t.zero_grad();
      }
      row.run(inputs).backward(cotangent);
    };
    put(line, "both", min_ms(both, seconds), 3 * row.cost.flops, bytes + backward_bytes, peaks);
  }
  report.line(std::move(line));
}

bool is_selected(const std::string& op, const std::vector<std::string>& filters) {
  return filters.empty() || std::any_of(filters.begin(), filters.end(), [&](const std::string& filter) {
           return op.find(filter) != std::string::npos;
         });
}

}}  // namespace tandem::benchmarks

int main(int argc, char** argv) {
  namespace tb = tandem::benchmarks;
  CLI::App app("Times single operations on one thread");
  std::vector<std::string> filters;
  std::string json;
  double seconds = 0.2;
  app.add_option("--filter", filters, "run the cases whose name contains one of these texts, separated by commas")
      ->delimiter(',');
  app.add_option("--seconds", seconds, "duration of each of the two measurements of a case")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--json", json, "also append the lines to this file");
  try {
    app.parse(argc, argv);
    tandem::set_num_threads(1);
    tb::Report report(json);
    tb::Peaks peaks{tb::fma_peak_gflops(), {}};
    for (const tandem::testing::Benchmark& row : tandem::testing::op_cases().benchmarks) {
      if (tb::is_selected(row.name, filters)) tb::run(row, seconds, peaks, report);
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
