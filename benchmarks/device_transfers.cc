// Times transfers and sums between the CPU devices of one process, relative to plain copies by the same machine.
//
//     ./bazelw run //benchmarks:device_transfers
//     ./bazelw run //benchmarks:device_transfers -- --max-mib 64
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>
#include <tandem/tensor/primitives.h>

namespace td = tandem;

namespace {

constexpr int64_t kMiB = 1 << 20;

struct Flags {
  int64_t min_mib = 1;
  int64_t max_mib = 1024;
  int64_t chunk_mib = 4;
  int in_flight = 2;
  int rounds = 9;
  std::string json;
};

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Copies with memcpy or with non-temporal stores; each thread copies one contiguous part.
void plain_copy(std::byte* out, const std::byte* in, int64_t num_bytes, int num_threads, bool nontemporal) {
  const int64_t part = num_bytes / num_threads / 64 * 64;
  const auto copy = [&](int i) {
    const int64_t begin = i * part;
    const size_t n = static_cast<size_t>(i + 1 == num_threads ? num_bytes - begin : part);
    if (nontemporal) {
      td::primitives::copy_nontemporal(out + begin, in + begin, n);
    } else {
      std::memcpy(out + begin, in + begin, n);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(copy, i);
  copy(0);
  for (std::thread& thread : threads) thread.join();
}

struct Method {
  std::string name;
  double traffic;  ///< bytes read and written, divided by those of a copy of the tensor
  std::function<void()> run;
  std::vector<double> seconds = {};
};

void measure(int64_t num_bytes, const Flags& flags, std::ofstream& json) {
  const td::Device first("cpu"), second("cpu:1"), third("cpu:2"), fourth("cpu:3");
  const td::Tensor source = td::randn({num_bytes / 4}, {td::kFloat32, first});
  const td::Tensor other = source.to(third);
  const std::vector<td::Tensor> quarters = source.chunk(4);
  const td::TransferOptions options{.chunk_bytes = flags.chunk_mib * kMiB, .max_in_flight = flags.in_flight};
  td::Tensor plain_target = td::zeros({num_bytes / 4}, {td::kFloat32, second});
  const auto plain = [&](int threads, bool nontemporal) {
    plain_copy(plain_target.data_ptr(), source.data_ptr(), num_bytes, threads, nontemporal);
  };
  const int cores = td::available_cores();
  const size_t num_plain = cores > 1 ? 4 : 2;
  std::vector<Method> methods = {{"memcpy, 1 thread", 1, [&] { plain(1, false); }},
                                 {"non-temporal, 1 thread", 1, [&] { plain(1, true); }}};
  if (cores > 1) {
    methods.push_back({td::str("memcpy, ", cores, " threads"), 1, [&] { plain(cores, false); }});
    methods.push_back({td::str("non-temporal, ", cores, " threads"), 1, [&] { plain(cores, true); }});
  }
  methods.push_back({"to", 1, [&] { td::to(source, second); }});
  methods.push_back({"to, uncached memory", 1, [&] {
                       td::empty_cache(fourth);
                       td::to(source, fourth);
                     }});
  methods.push_back({"to_async, 4 tensors", 1, [&] {
                       std::vector<td::Future<td::Tensor>> futures;
                       for (const td::Tensor& quarter : quarters)
                         futures.push_back(td::to_async(quarter, second, options));
                       for (const auto& future : futures) future.wait();
                     }});
  methods.push_back({"to_async, chunks", 1, [&] { td::to_async(source, second, options).wait(); }});
  methods.push_back({"gather_to, 4 tensors", 1, [&] { td::gather_to(second, quarters, options); }});
  methods.push_back({"to, then add", 2.5, [&] { td::add(source.to(second), other.to(second)); }});
  methods.push_back({"sum_to, streamed", 1.5, [&] { td::comm::sum_to(second, {source, other}, options); }});

  for (int round = -1; round < flags.rounds; ++round) {  // methods alternate; the first round is a warm-up
    for (Method& method : methods) {
      const double seconds = seconds_of(method.run);
      if (round >= 0) method.seconds.push_back(seconds);
    }
  }
  double best = 0;  // GB/s of the fastest plain copy
  for (size_t i = 0; i < methods.size(); ++i) {
    const double gb_per_s = static_cast<double>(num_bytes) / tandem::benchmarks::median(methods[i].seconds) / 1e9;
    if (i < num_plain) best = std::max(best, gb_per_s);
    const double relative = gb_per_s * methods[i].traffic / best;
    std::printf("%9.0f  %-24s %9.3f %8.2f", static_cast<double>(num_bytes) / static_cast<double>(kMiB),
                methods[i].name.c_str(), 1e3 * tandem::benchmarks::median(methods[i].seconds), gb_per_s);
    if (i >= num_plain) std::printf(" %10.2f", relative);
    std::printf("\n");
    tandem::benchmarks::Json line = {{"mib", num_bytes / kMiB}, {"method", methods[i].name}, {"gb_per_s", gb_per_s}};
    if (i >= num_plain) line["relative_to_plain"] = relative;
    if (json.is_open()) json << line.dump() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times transfers and sums between the CPU devices of one process");
  app.option_defaults()->always_capture_default();
  app.add_option("--min-mib", flags.min_mib, "size of the smallest tensor")->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-mib", flags.max_mib, "size of the largest tensor; sizes grow by a factor of four")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--chunk-mib", flags.chunk_mib, "chunk size of asynchronous transfers and sums")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--in-flight", flags.in_flight, "chunks in flight at a time")->check(CLI::Range(1, 64));
  app.add_option("--rounds", flags.rounds, "timed rounds, methods alternating; the median is reported")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", flags.json, "append one object per line to this file");
  return td::benchmarks::run_program(app, argc, argv, [&] {
    if (td::cpu_device_count() < 4) td::set_cpu_device_count(4);
    std::ofstream json;
    if (!flags.json.empty()) {
      json.open(tandem::benchmarks::user_path(flags.json), std::ios::app);
      TANDEM_CHECK(IoError, json.good(), "--json: cannot write '", flags.json, "'");
    }
    std::printf("%9s  %-24s %9s %8s %10s\n", "MiB", "method", "ms", "GB/s", "of plain");
    for (int64_t mib = flags.min_mib; mib <= flags.max_mib; mib *= 4) measure(mib * kMiB, flags, json);
  });
}
