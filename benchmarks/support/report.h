// Prints results as JSON, one object per line, and times functions.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::benchmarks {

using Json = nlohmann::ordered_json;

/// Writes one JSON object per line to stdout and, if a path is given, to a file. Adds "cpu" and "fma_peak_gflops",
/// which the constructor measures, to each.
class Report {
 public:
  /// `path`: file to append to, relative to the user's folder; "": no file. Throws IoError if it cannot be written.
  explicit Report(const std::string& path);
  void line(Json object);

 private:
  std::ofstream file_;
  std::string path_;
  std::string cpu_;
  double fma_peak_gflops_;
};

/// Statistics of the times of single calls.
struct Times {
  double median_ms = 0;
  double min_ms = 0;
};
/// Calls f `warmup` times, then times `count` calls.
Times time_calls(const std::function<void()>& f, int warmup, int count);
/// Microseconds per call of f: the minimum over `rounds` of the mean of `calls` calls.
double microseconds_per_call(const std::function<void()>& f, int calls, int rounds);

double median(std::vector<double> values);
/// Peak resident memory of this process, in MiB.
double peak_resident_mb();
/// `path` relative to the folder in which the user typed the command, also under `bazelw run`.
std::string user_path(const std::string& path);

}  // namespace tandem::benchmarks
