// Moves of one large tensor: in chunks, not contiguous, cancelled, and larger than the free memory.
#include <tandem/examples/device_transfers/transfers.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>

#include <functional>

namespace td = tandem;

namespace examples {

namespace {

/// "peak memory on cpu 256.0 MiB"
std::string peak_of(td::Device device, int64_t num_bytes) {
  return td::str("peak memory on ", device, " ", td::format_bytes(num_bytes));
}

}  // namespace

void show_chunks(Demo& demo, const td::Tensor& x, td::Device target, td::TransferOptions options) {
  demo.heading(td::str("move x, ", td::format_bytes(x.num_bytes()), " on ", x.device(), ", in chunks of ",
                       td::format_bytes(options.chunk_bytes), ", ", options.max_in_flight, " in flight"));
  demo.code("td::plan_move({x}, target, options)  // moves nothing");
  const td::MovePlan plan = td::plan_move({x}, target, options);
  demo.text(td::to_string(plan));

  demo.code("td::to_async(x, target, options).get()  // calls options.progress");
  int64_t quarters = 0;
  options.progress = [&](int64_t num_bytes, int64_t total_bytes) {
    if (4 * num_bytes / total_bytes == quarters) return;
    quarters = 4 * num_bytes / total_bytes;
    demo.text(td::str(25 * quarters, " %"));
  };
  const PeakMemory peak(target);
  const td::Tensor moved = td::to_async(x, target, options).get();
  demo.check(peak_of(target, peak.bytes()) + ", only the result: chunks are copied directly into it",
             peak.bytes() == plan.requirements[0].result_bytes);
  demo.check("the data is equal", largest_difference(moved, x) == 0);
}

void show_strided(Demo& demo, const td::Tensor& x, td::Device target, const td::TransferOptions& options) {
  demo.heading("move x.t(), which is not contiguous: chunks are first packed on its device");
  const td::MovePlan plan = td::plan_move({x.t()}, target, options);
  demo.code("td::to_async(x.t(), target, options).get()");
  const PeakMemory target_peak(target);
  const PeakMemory source_peak(x.device());
  const td::Tensor moved = td::to_async(x.t(), target, options).get();
  demo.check(peak_of(target, target_peak.bytes()), target_peak.bytes() == plan.requirements[0].result_bytes);
  const int64_t chunks = source_peak.bytes();
  const int64_t planned = plan.requirements[1].staging_bytes;
  demo.check(td::str(peak_of(x.device(), chunks), " for chunks in flight, planned ", td::format_bytes(planned)),
             chunks > 0 && chunks <= planned);
  demo.check("the data is equal", largest_difference(moved, x.t()) == 0);
}

void show_large_times(Demo& demo, const td::Tensor& x, td::Device target, const td::TransferOptions& options) {
  demo.heading("times");
  using Tensors = MethodTable::Tensors;
  MethodTable table(demo, static_cast<double>(x.num_bytes()), "GB/s");
  const auto row = [&](const std::string& method, const td::Tensor& expected, const std::function<td::Tensor()>& f) {
    table.row(method, target, [&] { return Tensors{f()}; }, {expected});
  };
  row("x.to(target)", x, [&] { return x.to(target); });
  row("td::to_async(x, target, options).get()", x, [&] { return td::to_async(x, target, options).get(); });
  row("x.t().to(target)", x.t(), [&] { return x.t().to(target); });
  row("td::to_async(x.t(), target, options).get()", x.t(), [&] { return td::to_async(x.t(), target, options).get(); });
}

void show_cancel(Demo& demo, const td::Tensor& x, td::Device target, td::TransferOptions options) {
  demo.heading("future.cancel() halfway");
  const td::Promise<void> is_half_done;
  const td::Promise<void> is_cancelled;
  options.progress = [=](int64_t num_bytes, int64_t total_bytes) {
    if (2 * num_bytes < total_bytes) return;
    is_half_done.set_value();
    is_cancelled.future().wait();  // otherwise a fast move could complete before cancel()
  };
  const int64_t before = td::memory_stats(target).allocated;
  const td::Future<td::Tensor> future = td::to_async(x, target, options);
  is_half_done.future().wait();
  future.cancel();
  is_cancelled.set_value();
  demo.throws<td::CancelledError>("future.get()  // throws CancelledError", [&] { static_cast<void>(future.get()); });
  demo.check(td::str("its memory on ", target, " is freed"), td::memory_stats(target).allocated == before);
}

void show_too_large(Demo& demo, const td::Tensor& x, td::Device target) {
  demo.heading(td::str(target, " has memory for half of x"));
  const MemoryLimit limit(target, x.num_bytes() / 2);
  const PeakMemory source_peak(x.device());
  const PeakMemory target_peak(target);
  demo.code("td::plan_move({x}, target).fits()");
  demo.check("false", !td::plan_move({x}, target).fits());
  demo.throws<td::OutOfMemory>("x.to(target)  // throws OutOfMemory", [&] { x.to(target); });
  demo.throws<td::OutOfMemory>("td::to_async(x, target)  // throws OutOfMemory immediately, not through the future",
                               [&] { static_cast<void>(td::to_async(x, target)); });
  demo.throws<td::OutOfMemory>("td::gather_to(target, {x})  // throws OutOfMemory",
                               [&] { td::gather_to(target, {x}); });
  demo.check("no device allocated memory", source_peak.bytes() == 0 && target_peak.bytes() == 0);
}

}  // namespace examples
