// How benchmarks print: one JSON object a line.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::benchmarks {

using Json = nlohmann::ordered_json;

/// Writes objects, one a line, to stdout and to a file if one is named.  Each gets "cpu" and "fma_peak_gflops", measured once.
class Report {
 public:
  /// Throws IoError if `path` is not "" and cannot be written.
  explicit Report(const std::string& path);
  void line(Json object);

 private:
  std::ofstream file_;
  std::string path_;
  std::string cpu_;
  double fma_peak_gflops_;
};

/// Times of single calls.
struct Times {
  double median_ms = 0;
  double min_ms = 0;
};
/// Calls f `warmup` times, then `count` times with a clock around each.
Times time_calls(const std::function<void()>& f, int warmup, int count);
/// Microseconds per call of f, the least of `rounds` means over `calls` calls each.
double microseconds_per_call(const std::function<void()>& f, int calls, int rounds);

double median(std::vector<double> values);
/// The most memory that this process had resident, in MB.
double peak_resident_mb();
/// `path` counted from where the user typed the command, under `bazelw run` too.
std::string from_users_folder(const std::string& path);

}  // namespace tandem::benchmarks
