// Makes batches in worker threads. Private to data/.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/data/data_loader.h>
#include <tandem/data/dataset.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace data {

/// Throws ValueError, with a text that begins with `op`, unless batch_size >= 1, num_workers >= 0, prefetch >= 1 and
/// num_workers * prefetch <= 2^20.
void check_options(const char* op, const DataLoaderOptions& options, bool has_own_sampler = false);

/// Makes the batches 0, 1, .. and hands them out in this order.
///
/// A worker takes the number of the next batch, makes the batch, and stores its outcome (the batch or an exception) in
/// the ring buffer at that number modulo the ring's size. The consumer consumes outcomes in the order of their numbers.
/// Invariant: consumed <= number of a batch that is taken but not consumed < consumed + ring size, so every slot is
/// used by at most one batch.
class Prefetcher {
 public:
  /// Makes a batch; workers call it concurrently.
  using Make = std::function<Batch(int64_t number)>;
  /// The line that is added to the text of an exception that is thrown while a batch is made.
  using Describe = std::function<std::string(int64_t number)>;

  /// Numbers begin at `first`, and are less than `end`. Of the options those about workers and device are used. Without
  /// workers next() makes the batch. Throws ResourceError if the system cannot start a thread.
  Prefetcher(Make make, Describe describe, const DataLoaderOptions& options, int64_t first, int64_t end);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch, on the device. There must be one. Rethrows the exception that was thrown while making it.
  Batch next();

 private:
  struct Outcome {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  Outcome& slot(int64_t number) { return ring_[static_cast<size_t>(number) % ring_.size()]; }
  Batch make_on_device(int64_t number) const;
  /// Body of a worker.
  void work();
  Batch wait_for(int64_t number);
  void stop();

  const Make make_;
  const Describe describe_;
  const Device device_;
  const bool has_workers_;
  const int64_t end_;

  std::mutex mutex_;  // guards the members from here to workers_
  std::condition_variable changed_;
  std::vector<Outcome> ring_;
  int64_t taken_;
  int64_t consumed_;
  bool stopping_ = false;

  std::vector<std::thread> workers_;
};

}}}  // namespace tandem::v0::data
