#include <tandem/examples/support/demo.h>

#include <tandem/examples/support/brief.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <sstream>

namespace td = tandem;

namespace examples {

void Demo::line(const std::string& text) { out_ << text << std::endl; }  // flushes, because the next step may take long

void Demo::heading(const std::string& text) { line("\n" + text); }

void Demo::code(const std::string& text) { line("    " + text); }

void Demo::text(const std::string& lines) {
  std::istringstream in(lines);
  for (std::string each; std::getline(in, each);) line("        " + each);
}

std::string Demo::count_result(bool is_correct) {
  ++num_results_;
  if (!is_correct) ++num_wrong_;
  return is_correct ? "ok" : "WRONG";
}

void Demo::check(const std::string& statement, bool is_true) { text(statement + "  " + count_result(is_true)); }

void Demo::returns(const std::string& code_text, const std::vector<td::Tensor>& got,
                   const std::vector<double>& expected) {
  code(code_text);
  std::string tensors;
  bool is_correct = true;
  for (const td::Tensor& tensor : got) {
    tensors += td::str(tensors.empty() ? "" : ", ", brief(tensor), " on ", tensor.device());
    is_correct = is_correct && tensor.to(td::kFloat64).to_vector<double>() == expected;
  }
  check(tensors, is_correct && !got.empty());
}

int Demo::finish() {
  line(num_wrong_ == 0 ? td::str("\nall ", num_results_, " results are correct")
                       : td::str("\n", num_wrong_, " of ", num_results_, " results are WRONG"));
  return num_wrong_ == 0 ? 0 : 1;
}

int run_demo(const std::function<void(Demo& demo)>& show) {
  Demo demo(std::cout);
  try {
    show(demo);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return demo.finish();
}

double median_milliseconds(const std::function<void()>& f) {
  constexpr size_t kCalls = 5;  // the first call may allocate memory from the system
  std::vector<double> times;
  while (times.size() < kCalls) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[kCalls / 2];
}

namespace {

std::string cells(const std::string& method, const std::string& device, const std::string& time,
                  const std::string& rate, const std::string& peak, const std::string& result) {
  char text[256];
  std::snprintf(text, sizeof text, "    %-50s %-6s %9s %8s %10s  %s", method.c_str(), device.c_str(), time.c_str(),
                rate.c_str(), peak.c_str(), result.c_str());
  return text;
}

/// The largest difference to the expected tensors; NaN if number, shape, dtype or device differ.
double max_deviation(const MethodTable::Tensors& results, const MethodTable::Tensors& expected, td::Device device) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto is_on_device = [&](const td::Tensor& result) { return result.device() == device; };
  if (std::none_of(results.begin(), results.end(), is_on_device)) return kNan;
  if (expected.size() != 1 && expected.size() != results.size()) return kNan;
  double largest = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const td::Tensor& wanted = expected[expected.size() == 1 ? 0 : i];
    if (results[i].shape() != wanted.shape() || results[i].dtype() != wanted.dtype()) return kNan;
    const double difference = largest_difference(results[i], wanted);
    if (std::isnan(difference)) return kNan;
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace

MethodTable::MethodTable(Demo& demo, double work, const std::string& unit) : demo_(demo), work_(work) {
  demo_.line(cells("", "on", "ms", unit, "peak", "result"));
}

void MethodTable::row(const std::string& method, td::Device device, const std::function<Tensors()>& f,
                      const Tensors& expected, double tolerance) {
  Tensors results;
  const PeakMemory peak(device);
  const double time = median_milliseconds([&] {
    results.clear();
    results = f();
    for (const td::Tensor& result : results) {
      if (!result.device().is_cpu()) td::cuda::synchronize(result.device());
    }
  });
  const int64_t peak_bytes = peak.bytes();

  const double deviation = max_deviation(results, expected, device);
  std::string result = demo_.count_result(deviation <= tolerance);
  if (deviation != 0) result += td::str(", off by ", deviation);
  demo_.line(cells(method, td::to_string(device), td::format_fixed(time, 2), td::format_fixed(work_ / time / 1e6, 1),
                   td::format_bytes(peak_bytes), result));
}

}  // namespace examples
