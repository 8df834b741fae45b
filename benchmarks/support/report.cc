#include <tandem/benchmarks/support/report.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <tandem/base/error.h>
#include <tandem/benchmarks/support/peak.h>

namespace tandem::benchmarks {

Report::Report(const std::string& path)
    : path_(user_path(path)), cpu_(cpu_model()), fma_peak_gflops_(fma_peak_gflops()) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::app);
  TANDEM_CHECK(IoError, file_.good(), "--json: cannot write '", path_, "'");
}

void Report::line(Json object) {
  for (auto& [key, value] : object.items()) {
    if (value.is_number_float()) value = std::round(value.get<double>() * 1e4) / 1e4;
  }
  object["cpu"] = cpu_;
  object["fma_peak_gflops"] = std::round(fma_peak_gflops_ * 10) / 10;
  const std::string text = object.dump();
  std::cout << text << std::endl;
  if (file_.is_open()) file_ << text << std::endl;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Times time_calls(const std::function<void()>& f, int warmup, int count) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < warmup; ++i) f();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    f();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

double microseconds_per_call(const std::function<void()>& f, int calls, int rounds) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
    best = round == 0 ? us : std::min(best, us);
  }
  return best;
}

double peak_resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

std::string user_path(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || folder == nullptr) return path;
  return (std::filesystem::path(folder) / path).string();
}

}  // namespace tandem::benchmarks
