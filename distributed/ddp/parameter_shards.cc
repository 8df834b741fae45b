#include <tandem/distributed/ddp/parameter_shards.h>

#include <algorithm>
#include <utility>

#include <tandem/distributed/ddp/parameter_digest.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Buckets whose gradients are being averaged while backward continues.
size_t max_in_flight(Shard level) { return level == Shard::kGradients ? 2 : 1; }

}  // namespace

ParameterShards::ParameterShards(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan,
                                 const NamedTensors& parameters, const ReducerOptions& options,
                                 const std::vector<RefPtr<StorageOwner>>& owners)
    : group_(std::move(group)),
      level_(options.shard),
      limits_memory_(level_ >= Shard::kGradients && options.unused == UnusedParameters::kError),
      bucket_of_(plan.placements.size()) {
  for (const auto& [name, tensor] : parameters) {
    TANDEM_CHECK(StateError, tensor.is_contiguous(), "DistributedDataParallel: '", name,
                 "' is not row-major, so the ranks cannot divide it; construct without shard");
    TANDEM_CHECK(StateError, tensor.storage()->use_count() == 1,
                 "DistributedDataParallel: another tensor uses the memory of '", name,
                 "', so the ranks cannot divide it; release views, states and results of earlier forwards, or "
                 "construct without shard");
    leaves_.emplace_back(&autograd::leaf(tensor));
  }
  for (const BucketPlan::Placement& placement : plan.placements) offsets_.push_back(placement.offset);
  for (const BucketPlan::Bucket& range : plan.buckets) {
    const BucketPlan::Buffer& buffer = plan.buffers[static_cast<size_t>(range.buffer)];
    Bucket bucket;
    for (int p = range.last_parameter; p >= range.first_parameter; --p) {  // in the order of the memory
      const auto parameter = static_cast<size_t>(p);
      if (plan.placements[parameter].buffer != range.buffer) continue;
      bucket_of_[parameter] = buckets_.size();
      offsets_[parameter] -= range.begin;
      bucket.contents.push_back(parameter);
    }
    const int64_t size = group_->size();
    bucket.parameters = zeros({size, (range.end - range.begin) / size}, {buffer.dtype, buffer.device});
    for (const size_t p : bucket.contents) {  // frees the old memory bucket by bucket
      const auto& [name, parameter] = parameters[p];
      Tensor own = slice(bucket.parameters, p);
      if (level_ == Shard::kParameters) group_->broadcast(parameter, 0, {.name = str("initial value of '", name, "'")});
      primitives::copy(parameter, own);
      if (level_ == Shard::kParameters) {
        bucket.memory.push_back(Storage::provided(own.device(), own.num_bytes(), owners[p]));
        own = make_view(bucket.memory.back(), own.dtype(), own.shape(), own.strides(), 0);
      }
      // Graphs of earlier forwards and copies for autocast belong to the old memory.
      while (own.storage()->version() <= parameter.version()) own.storage()->bump_version("DistributedDataParallel");
      leaves_[p]->rounded.remove();
      take_memory(parameter, own);
    }
    bucket.own = own_piece(bucket.parameters);
    if (level_ == Shard::kParameters) {
      const Tensor piece = empty_like(bucket.own);
      primitives::copy(bucket.own, piece);
      bucket.own = piece;
      bucket.parameters = {};
    }
    max_free_ = std::max(max_free_, 3 * bucket.own.num_bytes() * size);  // as max_in_flight, and one more
    buckets_.push_back(std::move(bucket));
  }
}

void ParameterShards::attach() {
  const int64_t rank = group_->rank();
  for (size_t p = 0; p < leaves_.size(); ++p) {
    const Tensor& own = buckets_[bucket_of_[p]].own;
    const int64_t piece = own.numel(), count = num_elements(leaves_[p]->shape());
    const int64_t begin = std::clamp<int64_t>(rank * piece - offsets_[p], 0, count);
    const int64_t end = std::clamp<int64_t>((rank + 1) * piece - offsets_[p], 0, count);
    const int64_t first = begin == end ? 0 : offsets_[p] + begin - rank * piece;
    const auto shard = make_ref<autograd::LeafShard>(RefPtr<autograd::ShardGroup>(this), p, begin, end,
                                                     own.slice(0, first, first + end - begin));
    shard->is_in_pieces = level_ == Shard::kParameters;
    leaves_[p]->set_shard(shard);
  }
}

void ParameterShards::remove() {
  for (const auto& leaf : leaves_) {
    if (leaf->shard() != nullptr && leaf->shard()->group.get() == this) leaf->remove_shard();
  }
}

Tensor ParameterShards::own_piece(const Tensor& values) const {
  return make_view(values.storage(), values.dtype(), {values.size(1)}, {1}, group_->rank() * values.size(1));
}

Tensor ParameterShards::slice(const Tensor& values, size_t parameter) const {
  const Shape& shape = leaves_[parameter]->shape();
  const int64_t bytes = size_of(values.dtype());
  // A storage of its own, for its version.
  const auto own = Storage::alias(values.storage(), offsets_[parameter] * bytes, num_elements(shape) * bytes);
  return make_view(own, values.dtype(), shape, row_major_strides(shape), 0);
}

Tensor ParameterShards::make_whole(const Bucket& bucket) {
  const Shape shape = {group_->size(), bucket.own.numel()};
  const Device device = bucket.own.device();
  const int64_t num_bytes = bucket.own.num_bytes() * group_->size();
  // The smallest memory that suffices. Reuse is in the order of the current stream, which has waited for the last
  // collective in this memory.
  auto found = free_.end();
  for (auto memory = free_.begin(); memory != free_.end(); ++memory) {
    const bool fits = (*memory)->device() == device && (*memory)->num_bytes() >= num_bytes;
    if (fits && (found == free_.end() || (*memory)->num_bytes() < (*found)->num_bytes())) found = memory;
  }
  const RefPtr<Storage> memory = found != free_.end() ? *found : Storage::allocate(device, num_bytes);
  if (found != free_.end()) free_.erase(found);
  return make_view(memory, bucket.own.dtype(), shape, row_major_strides(shape), 0);
}

void ParameterShards::recycle(Tensor& whole) {
  free_.push_back(std::exchange(whole, {}).storage());
  int64_t num_bytes = 0;
  for (const auto& memory : free_) num_bytes += memory->num_bytes();
  for (; num_bytes - free_.front()->num_bytes() >= max_free_; free_.erase(free_.begin()))
    num_bytes -= free_.front()->num_bytes();
}

void ParameterShards::reserve(size_t index) {
  Bucket& bucket = buckets_[index];
  if (!bucket.parameters.defined()) bucket.parameters = make_whole(bucket);
}

Work ParameterShards::gather_async(size_t index, const std::string& name) {
  const Bucket& bucket = buckets_[index];
  return group_->all_gather_async(bucket.parameters, bucket.own, {.name = name});
}

void ParameterShards::provide(size_t index) {
  Bucket& bucket = buckets_[index];
  bucket.version = 0;
  for (size_t i = 0; i < bucket.contents.size(); ++i) {
    const int64_t offset = offsets_[bucket.contents[i]] * static_cast<int64_t>(size_of(bucket.own.dtype()));
    bucket.memory[i]->provide(bucket.parameters.storage(), offset);
    bucket.version += bucket.memory[i]->version();
  }
}

void ParameterShards::withdraw(size_t index, bool keep_changes) {
  Bucket& bucket = buckets_[index];
  uint32_t version = 0;
  for (size_t i = 0; i < bucket.contents.size(); ++i) {
    version += bucket.memory[i]->version();
    bucket.memory[i]->withdraw();
    leaves_[bucket.contents[i]]->rounded.remove();
  }
  if (keep_changes && version != bucket.version) {
    bucket.changes = bucket.changes * 31 + static_cast<uint64_t>(hash_of_values(bucket.parameters));
    primitives::copy(own_piece(bucket.parameters), bucket.own);
  }
  if (bucket.parameters.defined()) recycle(bucket.parameters);
}

const Tensor& ParameterShards::gradients(size_t bucket) {
  Bucket& own = buckets_[bucket];
  if (own.gradients.defined()) return own.gradients;
  own.gradients = make_whole(own);
  // The padding between and behind the gradients is averaged as well.
  const Tensor flat = make_view(own.gradients.storage(), own.gradients.dtype(), {own.gradients.numel()}, {1}, 0);
  int64_t begin = 0;
  for (const size_t p : own.contents) {
    if (offsets_[p] > begin) primitives::fill(flat.slice(0, begin, offsets_[p]), 0);
    begin = offsets_[p] + num_elements(leaves_[p]->shape());
  }
  if (begin < flat.numel()) primitives::fill(flat.slice(0, begin, flat.numel()), 0);
  return own.gradients;
}

Tensor ParameterShards::slot(const autograd::Leaf& leaf) {
  const size_t parameter = leaf.shard()->index;
  Bucket& bucket = buckets_[bucket_of_[parameter]];
  const bool has_earlier = std::any_of(bucket.contents.begin(), bucket.contents.end(), [&](size_t p) {
    const autograd::LeafShard* const shard = leaves_[p]->shard();  // null during attach()
    return shard != nullptr && shard->is_filled;
  });
  if (has_earlier && !bucket.earlier.defined()) {  // before the memory is written
    bucket.earlier = empty_like(bucket.piece);
    primitives::copy(bucket.piece, bucket.earlier);
  }
  return slice(gradients(bucket_of_[parameter]), parameter);
}

Work ParameterShards::average_async(size_t index, const std::string& name) {
  while (limits_memory_ && in_flight_.size() >= max_in_flight(level_)) end_average(in_flight_.front());
  Bucket& bucket = buckets_[index];
  if (level_ == Shard::kOptimizer) {
    bucket.piece = own_piece(bucket.gradients);
  } else if (!bucket.piece.defined()) {
    bucket.piece = empty({bucket.gradients.size(1)}, bucket.gradients.options());
  }
  bucket.average = group_->reduce_scatter_async(bucket.piece, bucket.gradients, ReduceOp::kAvg, {.name = name});
  in_flight_.push_back(index);
  return bucket.average;
}

void ParameterShards::end_average(size_t index) {
  Bucket& bucket = buckets_[index];
  if (!bucket.gradients.defined()) return;  // ended before
  std::erase(in_flight_, index);
  if (bucket.average.valid()) {
    bucket.average.wait();
  } else {  // communication hooks have averaged the whole bucket
    TANDEM_CHECK(StateError, level_ == Shard::kOptimizer,
                 "DistributedDataParallel: two nested backwards reached the same parameters");
    bucket.piece = own_piece(bucket.gradients);
  }
  bucket.average = {};
  const int64_t piece_begin = group_->rank() * bucket.piece.numel();
  for (const size_t p : bucket.contents) {
    autograd::LeafShard& shard = *leaves_[p]->shard();
    const int64_t begin = shard.size() == 0 ? 0 : offsets_[p] + shard.begin - piece_begin;
    shard.gradient = bucket.piece.slice(0, begin, begin + shard.size());
    if (shard.is_filled) primitives::add_into(bucket.earlier.slice(0, begin, begin + shard.size()), shard.gradient);
    leaves_[p]->drop_slot();
  }
  bucket.earlier = {};
  if (level_ != Shard::kOptimizer) recycle(bucket.gradients);
}

void ParameterShards::exchange(const std::vector<const autograd::Leaf*>& leaves) {
  std::vector<bool> is_changed(buckets_.size());
  for (const autograd::Leaf* leaf : leaves) is_changed[bucket_of_[leaf->shard()->index]] = true;
  std::vector<Work> works;
  for (size_t i = buckets_.size(); i-- > 0;) {  // in the order of forward
    if (!is_changed[i]) continue;
    const Tensor& values = buckets_[i].parameters;
    works.push_back(group_->all_gather_async(values, own_piece(values),
                                             {.name = str("parameters of bucket ", i, " of ", buckets_.size())}));
  }
  for (const Work& work : works) work.wait();
}

void ParameterShards::all_reduce(const Tensor& values, bool maximum) {
  group_->all_reduce(values, maximum ? ReduceOp::kMax : ReduceOp::kSum, {.name = "number of divided gradients"});
}

}}}  // namespace tandem::v0::distributed
