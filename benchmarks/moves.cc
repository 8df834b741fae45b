// Times moves and sums between the CPU devices of one process, beside what the machine copies at best.
//
//     ./bazelw run //benchmarks:moves
//     ./bazelw run //benchmarks:moves -- --max-mib 64 --trace results/moves.json
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  std::string trace;
};

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The machine's own copies, each thread its part: with memcpy, and past the caches.
void raw_copy(std::byte* out, const std::byte* in, int64_t num_bytes, int num_threads, bool stream) {
  const int64_t part = num_bytes / num_threads / 64 * 64;
  const auto copy = [&](int i) {
    const int64_t begin = i * part;
    const size_t n = static_cast<size_t>(i + 1 == num_threads ? num_bytes - begin : part);
    if (stream) {
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

struct Way {
  std::string name;
  double traffic;  ///< bytes read and written, of those that a copy of the tensor reads and writes
  std::function<void()> run;
  std::vector<double> seconds = {};
};

void measure(int64_t num_bytes, const Flags& flags, std::ofstream& json) {
  const td::Device here("cpu"), there("cpu:1"), third("cpu:2"), fourth("cpu:3");
  const td::Tensor source = td::randn({num_bytes / 4}, {td::kFloat32, here});
  const td::Tensor other = source.to(third);
  const std::vector<td::Tensor> quarters = source.chunk(4);
  const td::TransferOptions options{.chunk_bytes = flags.chunk_mib * kMiB, .max_in_flight = flags.in_flight};
  td::Tensor raw_target = td::zeros({num_bytes / 4}, {td::kFloat32, there});
  const auto raw = [&](int threads, bool stream) {
    raw_copy(raw_target.data_ptr(), source.data_ptr(), num_bytes, threads, stream);
  };
  const int cores = td::available_cores();
  const size_t num_raw = cores > 1 ? 4 : 2;
  std::vector<Way> ways = {{"memcpy, 1 thread", 1, [&] { raw(1, false); }},
                           {"past caches, 1 thread", 1, [&] { raw(1, true); }}};
  if (cores > 1) {
    ways.push_back({td::str("memcpy, ", cores, " threads"), 1, [&] { raw(cores, false); }});
    ways.push_back({td::str("past caches, ", cores, " threads"), 1, [&] { raw(cores, true); }});
  }
  ways.push_back({"to", 1, [&] { td::to(source, there); }});
  ways.push_back({"to, new memory", 1, [&] {
                    td::empty_cache(fourth);
                    td::to(source, fourth);
                  }});
  ways.push_back({"to_async, 4 tensors", 1, [&] {
                    std::vector<td::Future<td::Tensor>> moves;
                    for (const td::Tensor& quarter : quarters) moves.push_back(td::to_async(quarter, there, options));
                    for (const auto& move : moves) move.wait();
                  }});
  ways.push_back({"to_async, chunks", 1, [&] { td::to_async(source, there, options).wait(); }});
  ways.push_back({"gather_to, 4 tensors", 1, [&] { td::gather_to(there, quarters, options); }});
  ways.push_back({"move, then add", 2.5, [&] { td::add(source.to(there), other.to(there)); }});
  ways.push_back({"sum_to, streamed", 1.5, [&] { td::comm::sum_to(there, {source, other}, options); }});

  for (int round = -1; round < flags.rounds; ++round) {  // all ways by turns; the first round warms up
    for (Way& way : ways) {
      const double seconds = seconds_of(way.run);
      if (round >= 0) way.seconds.push_back(seconds);
    }
  }
  double best = 0;  // of the machine
  for (size_t i = 0; i < ways.size(); ++i) {
    const double gb_per_s = static_cast<double>(num_bytes) / tandem::benchmarks::median(ways[i].seconds) / 1e9;
    if (i < num_raw) best = std::max(best, gb_per_s);
    const double of_machine = gb_per_s * ways[i].traffic / best;
    std::printf("%9.0f  %-24s %9.3f %8.2f", static_cast<double>(num_bytes) / static_cast<double>(kMiB),
                ways[i].name.c_str(), 1e3 * tandem::benchmarks::median(ways[i].seconds), gb_per_s);
    if (i >= num_raw) std::printf(" %10.2f", of_machine);
    std::printf("\n");
    tandem::benchmarks::Json line = {{"mib", num_bytes / kMiB}, {"way", ways[i].name}, {"gb_per_s", gb_per_s}};
    if (i >= num_raw) line["of_machine"] = of_machine;
    if (json.is_open()) json << line.dump() << std::endl;
  }
}

/// A move between two devices beside products on a third, by the clock and in the trace.
void overlap(const Flags& flags) {
  const td::Device here("cpu"), there("cpu:1"), third("cpu:2");
  const td::Tensor large = td::randn({flags.max_mib * kMiB / 4}, {td::kFloat32, here});
  const td::Tensor a = td::randn({1000, 1000}, {td::kFloat32, third});
  const td::TransferOptions options{.chunk_bytes = flags.chunk_mib * kMiB, .max_in_flight = 1};
  const int threads = td::num_threads();
  td::set_num_threads(1);  // the other core copies
  const auto compute = [&] {
    for (int i = 0; i < 4; ++i) td::matmul(a, a);
  };
  const auto move = [&] { return td::to_async(large, there, options); };
  move().wait();
  compute();
  const double move_s = seconds_of([&] { move().wait(std::chrono::hours(1)); });
  const double compute_s = seconds_of(compute);
  td::start_trace();
  const double both_s = seconds_of([&] {
    const td::Future<td::Tensor> moved = move();
    compute();
    moved.wait(std::chrono::hours(1));
  });
  const std::vector<td::TraceEvent> events = td::stop_trace();
  td::set_num_threads(threads);
  int64_t together = 0;  // while a product ran
  int64_t copying = 0;
  for (const td::TraceEvent& copy : events) {
    if (copy.name != "copy") continue;
    copying += copy.end_ns - copy.begin_ns;
    for (const td::TraceEvent& product : events) {
      if (product.name != "matmul") continue;
      together +=
          std::max<int64_t>(0, std::min(copy.end_ns, product.end_ns) - std::max(copy.begin_ns, product.begin_ns));
    }
  }
  std::printf(
      "move of %lld MiB %.1f ms, products %.1f ms, both at the same time %.1f ms; of the copying, %.0f %% during a "
      "product\n",
      static_cast<long long>(flags.max_mib), 1e3 * move_s, 1e3 * compute_s, 1e3 * both_s,
      copying > 0 ? 100.0 * static_cast<double>(together) / static_cast<double>(copying) : 0);
  if (!flags.trace.empty()) {
    td::profile::write_chrome_trace(tandem::benchmarks::from_users_folder(flags.trace), events);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times moves and sums between the CPU devices of one process");
  app.option_defaults()->always_capture_default();
  app.add_option("--min-mib", flags.min_mib, "size of the smallest tensor")->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-mib", flags.max_mib, "of the largest; four times as large from row to row")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--chunk-mib", flags.chunk_mib, "of asynchronous moves and sums")->check(CLI::Range(1, 1 << 20));
  app.add_option("--in-flight", flags.in_flight, "chunks at a time")->check(CLI::Range(1, 64));
  app.add_option("--rounds", flags.rounds, "of all ways by turns; medians are shown")->check(CLI::Range(1, 1000));
  app.add_option("--json", flags.json, "append one object per line to this file");
  app.add_option("--trace", flags.trace, "trace of a move during products, for ui.perfetto.dev");
  try {
    app.parse(argc, argv);
    if (td::cpu_device_count() < 4) td::set_cpu_device_count(4);
    std::ofstream json;
    if (!flags.json.empty()) {
      json.open(tandem::benchmarks::from_users_folder(flags.json), std::ios::app);
      TANDEM_CHECK(IoError, json.good(), "--json: cannot write '", flags.json, "'");
    }
    std::printf("%9s  %-24s %9s %8s %10s\n", "MiB", "way", "ms", "GB/s", "of machine");
    for (int64_t mib = flags.min_mib; mib <= flags.max_mib; mib *= 4) measure(mib * kMiB, flags, json);
    overlap(flags);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
