// Moves of many tensors to one device: methods, overlap with computation, continuations, suggested target.
#include <tandem/examples/device_transfers/transfers.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>

namespace td = tandem;

namespace examples {

namespace {

using Tensors = std::vector<td::Tensor>;
using Futures = std::vector<td::Future<td::Tensor>>;

Futures start_moves(const Tensors& tensors, td::Device target, const td::TransferOptions& options) {
  Futures futures;
  for (const td::Tensor& tensor : tensors) futures.push_back(td::to_async(tensor, target, options));
  return futures;
}

Tensors get_all(const Futures& futures) {
  Tensors tensors;
  for (const auto& future : futures) tensors.push_back(future.get());
  return tensors;
}

bool are_equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const td::Tensor& x, const td::Tensor& y) { return largest_difference(x, y) == 0; });
}

}  // namespace

void show_many(Demo& demo, const Tensors& tensors, td::Device target, const td::TransferOptions& options) {
  int64_t num_bytes = 0;
  for (const td::Tensor& tensor : tensors) num_bytes += tensor.num_bytes();
  demo.heading(
      td::str("move ", tensors.size(), " tensors of other devices, ", td::format_bytes(num_bytes), ", to ", target));
  MethodTable table(demo, static_cast<double>(num_bytes), "GB/s");
  const auto row = [&](const std::string& method, const std::function<Tensors()>& f) {
    table.row(method, target, f, tensors);
  };
  row("tensor.to(target) of each", [&] {
    Tensors moved;
    for (const td::Tensor& tensor : tensors) moved.push_back(tensor.to(target));
    return moved;
  });
  row("td::to_async(tensor, target) of each, then get()",
      [&] { return get_all(start_moves(tensors, target, options)); });
  row("td::gather_to(target, tensors)", [&] { return td::gather_to(target, tensors, options); });
}

void show_overlap(Demo& demo, const Tensors& tensors, td::Device target, td::Device worker,
                  const td::TransferOptions& options, const std::string& trace_path) {
  const int num_threads = td::num_threads();
  td::set_num_threads(std::max(1, num_threads - 1));  // leaves a core to the copy workers
  const td::Tensor a = td::rand({512, 512}, {td::kFloat32, worker});
  td::Tensor product;
  const auto compute_times = [&](int count) {
    for (int i = 0; i < count; ++i) product = a.matmul(a);
    if (!worker.is_cpu()) td::cuda::synchronize(worker);  // kernels are asynchronous
  };
  const double product_ms = median_milliseconds([&] { compute_times(1); });
  const double moves_ms = median_milliseconds([&] { get_all(start_moves(tensors, target, options)); });
  const auto num_products = static_cast<int>(std::ceil(moves_ms / product_ms));  // about as long as the moves
  const auto compute = [&] { compute_times(num_products); };
  const double products_ms = median_milliseconds(compute);

  Tensors moved;
  const auto move_and_compute = [&] {
    moved.clear();
    const Futures futures = start_moves(tensors, target, options);
    compute();
    moved = get_all(futures);
  };
  const double concurrent_ms = median_milliseconds(move_and_compute);

  demo.heading("moves during computation");
  demo.code(td::str("future = td::to_async(tensor, ", target, ") of each;  a.matmul(a) on ", worker,
                    ", several times;  future.get()"));
  const auto show_time = [&](std::string what, double ms) {
    what.resize(32, ' ');
    demo.text(what + td::format_fixed(ms, 2) + " ms");
  };
  show_time("moves alone", moves_ms);
  show_time(td::format_count(num_products, "product") + " alone", products_ms);
  show_time("one after the other", moves_ms + products_ms);
  show_time("concurrently", concurrent_ms);
  demo.check("the product is correct", largest_difference(product, a.matmul(a)) == 0);
  demo.check("the moved tensors are equal", are_equal(moved, tensors));

  if (!trace_path.empty()) {
    td::start_trace();
    move_and_compute();
    td::profile::write_chrome_trace(trace_path, td::stop_trace());
    demo.text("trace of the concurrent run, for ui.perfetto.dev: " + trace_path);
  }
  td::set_num_threads(num_threads);
}

void show_then(Demo& demo, const Tensors& tensors, td::Device target, const td::TransferOptions& options) {
  demo.code("future.then(f)  // f runs when the move is complete, on the thread that completed it");
  const td::Promise<size_t> all;
  const auto num_moved = std::make_shared<std::atomic<size_t>>(0);
  const Futures futures = start_moves(tensors, target, options);
  for (const auto& future : futures) {
    future.then([all, num_moved, n = tensors.size()] {
      if (++*num_moved == n) all.set_value(n);
    });
  }
  const size_t n = all.future().get();  // completes without a wait on the single futures
  demo.check(td::str("f ran for ", n, " tensors, which are equal"), are_equal(get_all(futures), tensors));
}

void show_choice(Demo& demo, const Tensors& tensors, const std::vector<td::Device>& candidates) {
  demo.heading("choose the target of tensors on several devices");
  demo.code("td::suggest_device(tensors)  // compares the costs, and moves nothing");
  const td::DeviceSuggestion suggestion = td::suggest_device(tensors, candidates);
  demo.text(td::to_string(suggestion));

  const td::Device chosen = suggestion.best.value_or(candidates[0]);
  demo.code(td::str("td::gather_to(", chosen, ", tensors)"));
  const Tensors gathered = td::gather_to(chosen, tensors);
  demo.check("all tensors are on this device, and equal",
             are_equal(gathered, tensors) && std::all_of(gathered.begin(), gathered.end(),
                                                         [&](const td::Tensor& x) { return x.device() == chosen; }));

  demo.code(td::str("td::suggest_device(tensors)  // without free memory on ", chosen));
  const MemoryLimit limit(chosen, 1);
  const td::DeviceSuggestion other = td::suggest_device(tensors, candidates);
  demo.text(td::to_string(other));
  demo.check("another device is suggested", other.best.has_value() && *other.best != chosen);
}

}  // namespace examples
