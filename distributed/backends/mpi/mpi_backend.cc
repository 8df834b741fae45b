#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/distributed/backends/accumulate.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/rendezvous/rendezvous.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::chrono::microseconds kPollInterval{50};  // while no caller waits
// An all_reduce is cut into chunks, several at a time: MPI exchanges one while it reduces another.
constexpr int kChunkElements = 1 << 20, kWindow = 4;
constexpr size_t kMaxKeptBytes = 64 << 20;  // of memory for the next collective
constexpr int64_t kFlatBytes = 8 << 10;     // up to this size the flat backend sends data with the signatures

std::byte* enlarge(std::vector<std::byte>& memory, int64_t num_bytes) {
  if (memory.size() < static_cast<size_t>(num_bytes)) memory.resize(static_cast<size_t>(num_bytes));
  return memory.data();
}

/// Sizes and positions of parts in one memory, in elements.
struct Layout {
  std::vector<int> counts, offsets;
  std::byte* data = nullptr;
  bool is_copy = false;  ///< `data` is not the parts' own memory

  Layout() = default;
  Layout(const std::vector<Part>& parts, int64_t size, std::vector<std::byte>& memory, bool is_read) {
    int64_t total = 0;
    for (const Part& part : parts) {
      counts.push_back(static_cast<int>(part.num_elements));
      offsets.push_back(static_cast<int>(total));
      if (total == 0) data = part.data;
      is_copy |= part.num_elements > 0 && part.data != data + total * size;
      total += part.num_elements;
    }
    TANDEM_CHECK(ValueError, total <= INT_MAX, "mpi: the tensors have ", total, " elements (at most ", INT_MAX, ")");
    if (!is_copy) return;
    data = enlarge(memory, total * size);
    for (size_t i = 0; is_read && i < parts.size(); ++i) {
      if (counts[i] > 0) std::memcpy(data + offsets[i] * size, parts[i].data, static_cast<size_t>(counts[i] * size));
    }
  }
};

/// What MPI uses for one collective until it has completed.
struct Transfer {
  std::vector<MPI_Request> requests = std::vector<MPI_Request>(kWindow, MPI_REQUEST_NULL);
  TensorList kept;                 ///< the caller's tensors
  std::vector<std::byte> in, out;  ///< for data that MPI cannot use in place; kept for the next collective
  Layout in_layout, out_layout;    ///< MPI may read these arrays until the end
};

/// A collective, which MPI cannot cancel, was abandoned. Its memory is never freed, because MPI may still use it.
std::atomic<bool> has_abandoned{false};

bool has(int (*query)(int*)) {
  int flag = 0;
  return query(&flag), flag != 0;
}

/// Waits for the other ranks. Not after a failure, when they may not call it, and not in a process that a rank forked.
void finalize_at_exit(int status, void* process) {
  const bool is_rank = reinterpret_cast<intptr_t>(process) == getpid();
  if (is_rank && status == 0 && !has_abandoned && !has(MPI_Finalized)) MPI_Finalize();
}

/// Initializes MPI, which waits for all processes of the job. Returns why this rank cannot use MPI; empty if it can.
std::string initialize() {
  static const int level = [] {
    int provided = MPI_THREAD_SINGLE;
    if (has(MPI_Initialized)) return MPI_Query_thread(&provided), provided;
    on_exit(finalize_at_exit, reinterpret_cast<void*>(static_cast<intptr_t>(getpid())));
    // Ring; the default takes twice as long over TCP. MPI_Init_thread sets variables of the environment too.
    setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1", 0);
    return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), provided;
  }();
  return level == MPI_THREAD_MULTIPLE ? "" : "the MPI library does not provide MPI_THREAD_MULTIPLE";
}

/// Why this rank must not initialize or use MPI; empty if it may.
std::string find_obstacle(const ProcessGroupOptions& options) {
  const auto number = [](const char* name) { return parse_integer(env_string(name).value_or("")).value_or(-1); };
  const int64_t rank = number("PMIX_RANK");
  // mpirun may run in a larger step of Slurm.
  const int64_t size = number(env_string("OMPI_COMM_WORLD_SIZE") ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  if (rank < 0) return "the program was not started by mpirun or srun --mpi=pmix";
  if (rank != job_rank(options, options.rank)) return str("its rank in MPI is ", rank);
  if (has(MPI_Initialized) || size == options.world_size) return "";
  return str("MPI is not initialized, and the group has ", options.world_size, " of MPI's ", size,
             " ranks; first create a group of all ranks with mpi");
}

/// By DType; half types are only moved.
MPI_Datatype to_mpi(DType dtype) {
  const MPI_Datatype types[] = {MPI_UINT8_T, MPI_UINT8_T,  MPI_INT8_T,   MPI_INT16_T, MPI_INT32_T,
                                MPI_INT64_T, MPI_UINT16_T, MPI_UINT16_T, MPI_FLOAT,   MPI_DOUBLE};
  return types[static_cast<size_t>(dtype)];
}

/// MPI's own minimum and maximum may ignore NaN.
template <ReduceOp op>
MPI_Op with_nan() {
  static const MPI_Op result = [] {
    MPI_Op created = MPI_OP_NULL;
    const auto f = [](void* in, void* inout, int* count, MPI_Datatype* type) {
      const std::array inputs = {static_cast<const std::byte*>(in), static_cast<const std::byte*>(inout)};
      primitives::reduce(op, *type == MPI_FLOAT ? kFloat32 : kFloat64, inputs, *count, static_cast<std::byte*>(inout));
    };
    return MPI_Op_create(f, 1, &created), created;
  }();
  return result;
}

MPI_Op to_mpi(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kMin && is_floating_point(dtype)) return with_nan<ReduceOp::kMin>();
  if (op == ReduceOp::kMax && is_floating_point(dtype)) return with_nan<ReduceOp::kMax>();
  const MPI_Op sum = dtype == kBool ? MPI_BOR : MPI_SUM, product = dtype == kBool ? MPI_BAND : MPI_PROD;
  const MPI_Op ops[] = {sum, sum, product, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};
  return ops[static_cast<size_t>(op)];
}

bool is_half(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }

/// The backend of one rank, composed of a flat backend and a communicator of the members.
///
/// The flat backend compares all signatures and transfers the messages. When all ranks have agreed on a collective,
/// nonblocking calls of MPI transfer its data in the caller's memory. The thread that runs the group polls them.
class MpiBackend final : public Backend {
 public:
  MpiBackend(const ProcessGroupOptions& options, std::unique_ptr<Backend> flat, int tag);
  ~MpiBackend() override;

  const char* name() const override { return "mpi"; }
  std::string describe() const override;
  int max_polls() const override { return in_flight_ ? 1500 : flat_->max_polls(); }
  void do_start(const Collective& collective) override {
    call_ = &collective;
    flat_->do_start(flat_call_ = flat_call(collective));
  }
  bool do_prefetch_signature(const Collective& next, bool input_is_ready) override {
    return flat_->do_prefetch_signature(flat_call(next), input_is_ready);
  }
  Advance do_advance() override;
  void do_start_p2p(P2pRequest& transfer) override { flat_->do_start_p2p(transfer); }
  Advance do_advance_p2p() override { return flat_->do_advance_p2p(); }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override {
    // While MPI transfers, the flat backend's events do not matter. `changed` may begin a transfer.
    if (!in_flight_) return flat_->do_sleep([&] { return changed() || in_flight_; }, until);
    if (!changed()) std::this_thread::sleep_until(std::min(until, Clock::now() + kPollInterval));
  }
  void do_wake() override { flat_->do_wake(); }
  void do_cancel() override {
    is_cancelled_ = true;
    flat_->do_cancel();
  }
  const PeerEnd* do_peer_end(int rank) override { return in_flight_ ? nullptr : flat_->do_peer_end(rank); }
  /// Shorter than the 250 ms after which mpirun of OpenMPI 5.0 sends SIGTERM.
  std::chrono::milliseconds arrival_time() const override { return std::chrono::milliseconds(100); }
  /// A rank that left has finished its part of a collective that MPI transfers.
  bool do_drain(int rank) override { return flat_->do_drain(rank) && !in_flight_; }
  bool do_needs(int rank) override { return in_flight_ || flat_->do_needs(rank); }
  bool do_needs_p2p(int rank) override { return flat_->do_needs_p2p(rank); }
  LastStarted do_last_started(int rank) const override { return flat_->do_last_started(rank); }
  std::vector<int> do_awaited() override { return in_flight_ ? std::vector<int>() : flat_->do_awaited(); }

 private:
  bool uses_mpi(const Collective& c) const;
  Collective flat_call(Collective call) const {
    call.moves_data = call.moves_data && !uses_mpi(call);
    return call;
  }
  bool has_output() const { return call_->root < 0 || call_->root == options_.rank; }
  /// Throws GroupError if `code` is an error.
  void check(int code) const;
  void start_reduction();
  void start_exchange();
  void start_chunk(MPI_Request& request);
  void finish();

  const ProcessGroupOptions options_;
  const std::unique_ptr<Backend> flat_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<Transfer> transfer_ = std::make_unique<Transfer>();

  std::atomic<bool> is_cancelled_{false};

  // The running collective.
  const Collective* call_ = nullptr;
  Collective flat_call_;
  std::atomic<bool> in_flight_{false};  // MPI transfers its data
  std::byte* result_ = nullptr;         // copied or converted to the output at the end; null: in its place
  const void* chunk_in_ = nullptr;      // the chunks of an all_reduce that have not begun
  std::byte* chunk_out_ = nullptr;
  int64_t elements_left_ = 0;
};

MpiBackend::MpiBackend(const ProcessGroupOptions& options, std::unique_ptr<Backend> flat, int tag)
    : options_(options), flat_(std::move(flat)) {
  std::vector<int> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) ranks.push_back(job_rank(options, rank));
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, options.world_size, ranks.data(), &members);
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm_);
  if (code != MPI_SUCCESS) fail_to_join(options, str("MPI_Comm_create_group failed with code ", code));
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
}

MpiBackend::~MpiBackend() {
  // After a failure not all members free the communicator.
  if (!is_cancelled_ && !has(MPI_Finalized)) MPI_Comm_free(&comm_);
  if (in_flight_) has_abandoned = transfer_.release() != nullptr;
}

std::string MpiBackend::describe() const {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  library[std::strcspn(library, ",")] = '\0';
  return str("mpi (", library, "), calls compared on ", flat_->describe());
}

void MpiBackend::check(int code) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw GroupError(str(" failed\n  ", text), text, job_rank(options_, options_.rank));
}

/// The flat backend transfers small data, and what MPI cannot count. All ranks compare these fields, so they agree.
/// Parts of an all_to_all differ between ranks, so Layout checks their number.
bool MpiBackend::uses_mpi(const Collective& c) const {
  const bool is_small = c.num_bytes() <= kFlatBytes && c.kind != CollectiveKind::kAllToAll;
  return c.moves_data && !is_small && c.num_elements <= INT_MAX / options_.world_size;
}

Advance MpiBackend::do_advance() {
  if (!in_flight_) {
    const Advance result = flat_->do_advance();
    if (result != Advance::kDone || !uses_mpi(*call_)) return result;
    if (call_->kept != nullptr) transfer_->kept = *call_->kept;
    in_flight_ = true;
    result_ = nullptr;
    is_reduction(call_->kind) ? start_reduction() : start_exchange();
    return Advance::kMoved;
  }
  int index = MPI_UNDEFINED, has_any = 0;
  auto& requests = transfer_->requests;
  check(MPI_Testany(kWindow, requests.data(), &index, &has_any, MPI_STATUS_IGNORE));
  if (has_any == 0) return Advance::kIdle;
  if (index != MPI_UNDEFINED) return start_chunk(requests[static_cast<size_t>(index)]), Advance::kMoved;
  in_flight_ = false;
  finish();
  return Advance::kDone;
}

/// Half types, which MPI does not have, are reduced in float32.
void MpiBackend::start_reduction() {
  const Collective& c = *call_;
  const bool is_wide = is_half(c.dtype);
  const DType dtype = is_wide ? kFloat32 : c.dtype;
  const auto count = static_cast<int>(c.num_elements);
  const int64_t num_bytes = count * size_of(dtype);
  const MPI_Op op = to_mpi(c.op, dtype);
  MPI_Request* const request = transfer_->requests.data();
  if (c.kind == CollectiveKind::kReduceScatter) {
    const bool is_apart = !is_wide && c.output != c.inputs[static_cast<size_t>(options_.rank)].data;
    if (!is_apart) result_ = enlarge(transfer_->out, num_bytes);
    std::byte* const input = is_wide ? enlarge(transfer_->in, num_bytes * options_.world_size)
                                     : Layout(c.inputs, size_of(dtype), transfer_->in, true).data;
    for (size_t i = 0; is_wide && i < c.inputs.size(); ++i) {
      widen(c.dtype, c.inputs[i].data, count, input + static_cast<int64_t>(i) * num_bytes);
    }
    return check(
        MPI_Ireduce_scatter_block(input, is_apart ? c.output : result_, count, to_mpi(dtype), op, comm_, request));
  }
  if (is_wide) {
    result_ = enlarge(transfer_->in, num_bytes);
    widen(c.dtype, c.input, count, result_);
  }
  const std::byte* const input = is_wide ? result_ : c.input;
  chunk_out_ = is_wide ? result_ : c.output;
  chunk_in_ = has_output() && input == chunk_out_ ? MPI_IN_PLACE : input;
  if (c.kind == CollectiveKind::kReduce) {
    return check(MPI_Ireduce(chunk_in_, chunk_out_, count, to_mpi(dtype), op, c.root, comm_, request));
  }
  elements_left_ = count;
  for (MPI_Request& r : transfer_->requests) start_chunk(r);
}

void MpiBackend::start_chunk(MPI_Request& request) {
  if (elements_left_ == 0) return;
  const DType dtype = is_half(call_->dtype) ? kFloat32 : call_->dtype;
  const int count = static_cast<int>(std::min<int64_t>(elements_left_, kChunkElements));
  check(MPI_Iallreduce(chunk_in_, chunk_out_, count, to_mpi(dtype), to_mpi(call_->op, dtype), comm_, &request));
  if (chunk_in_ != MPI_IN_PLACE) chunk_in_ = static_cast<const std::byte*>(chunk_in_) + count * size_of(dtype);
  chunk_out_ += count * size_of(dtype);
  elements_left_ -= count;
}

void MpiBackend::start_exchange() {
  const Collective& c = *call_;
  const MPI_Datatype type = to_mpi(c.dtype);
  const auto n = static_cast<int>(c.num_elements);
  const auto own = static_cast<size_t>(options_.rank);
  MPI_Request* const request = transfer_->requests.data();
  const Layout& in = transfer_->in_layout = Layout(c.inputs, size_of(c.dtype), transfer_->in, true);
  const Layout& out = transfer_->out_layout = Layout(c.outputs, size_of(c.dtype), transfer_->out, false);
  if (out.is_copy) result_ = out.data;
  const bool is_own_input = !c.outputs.empty() && !out.is_copy && c.input == c.outputs[own].data;
  const bool is_own_output = !c.inputs.empty() && !in.is_copy && c.output == c.inputs[own].data;
  const void* const send = is_own_input ? MPI_IN_PLACE : c.input;
  void* const recv = is_own_output ? MPI_IN_PLACE : c.output;
  switch (c.kind) {
    case CollectiveKind::kBroadcast: return check(MPI_Ibcast(c.output, n, type, c.root, comm_, request));
    case CollectiveKind::kGather: return check(MPI_Igather(send, n, type, out.data, n, type, c.root, comm_, request));
    case CollectiveKind::kScatter: return check(MPI_Iscatter(in.data, n, type, recv, n, type, c.root, comm_, request));
    case CollectiveKind::kAllGather:
      return check(MPI_Iallgatherv(send, out.counts[own], type, out.data, out.counts.data(), out.offsets.data(), type,
                                   comm_, request));
    default:
      return check(MPI_Ialltoallv(in.data, in.counts.data(), in.offsets.data(), type, out.data, out.counts.data(),
                                  out.offsets.data(), type, comm_, request));
  }
}

void MpiBackend::finish() {
  const Collective& c = *call_;
  if (is_reduction(c.kind) && has_output()) {
    finish_partial(c.op == ReduceOp::kAvg ? c.op : ReduceOp::kSum, c.dtype, options_.world_size,
                   result_ != nullptr ? result_ : c.output, c.num_elements, c.output);
  }
  std::byte* from = result_;
  for (size_t i = 0; result_ != nullptr && i < c.outputs.size(); ++i) {
    const auto num_bytes = static_cast<size_t>(c.outputs[i].num_elements * size_of(c.dtype));
    if (num_bytes > 0) std::memcpy(c.outputs[i].data, std::exchange(from, from + num_bytes), num_bytes);
  }
  transfer_->kept.clear();
  if (transfer_->in.size() + transfer_->out.size() > kMaxKeptBytes) transfer_ = std::make_unique<Transfer>();
}

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(const ProcessGroupOptions& options,
                                          FunctionRef<std::unique_ptr<Backend>()> make_flat) {
  // MPI_Init_thread and MPI_Comm_create_group wait for all members without a deadline. So no rank calls them before all
  // have joined, nor if one of them cannot.
  Rendezvous rendezvous(options, "mpi");
  const auto find_text = [&](const std::string& key, const std::string& own) {  // of any rank that has one
    auto all = rendezvous.exchange(key, own.empty() ? own : str("rank ", job_rank(options, options.rank), ": ", own));
    return *std::max_element(all.begin(), all.end());
  };
  std::string obstacle = find_text("obstacle", find_obstacle(options));
  if (obstacle.empty()) obstacle = find_text("initialized", initialize());
  // Groups that share two ranks and call MPI_Comm_create_group concurrently need different tags. So all members reserve
  // a tag, or try another one. MPI guarantees only these tags.
  static std::array<std::atomic_flag, 32768> used_tags;
  const auto clear = [](std::atomic_flag* flag) { flag->clear(); };
  std::unique_ptr<std::atomic_flag, decltype(clear)> reserved;
  size_t tag = 0;
  bool is_agreed = !obstacle.empty();
  for (int round = 0; !is_agreed; ++round) {
    tag = hash_name(str(options.name, "/", options.world_size, "/", round)) % used_tags.size();
    reserved.reset(used_tags[tag].test_and_set() ? nullptr : &used_tags[tag]);
    is_agreed = find_text(str("tag ", round), reserved ? "" : "uses it").empty();
  }
  rendezvous.finish();
  if (obstacle.empty()) return std::make_unique<MpiBackend>(options, make_flat(), static_cast<int>(tag));
  if (cpu_backend(options) == "auto") return nullptr;
  fail_to_join(options, "the mpi backend cannot be used by " + obstacle);
}

}}}  // namespace tandem::v0::distributed
