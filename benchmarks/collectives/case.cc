#include <tandem/benchmarks/collectives/case.h>

#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem::benchmarks {

namespace {

double first_value(int64_t i, int64_t rank) { return static_cast<double>((i + 3 * rank) % 7 + 1); }

}  // namespace

const std::vector<OpInfo>& all_ops() {
  static const std::vector<OpInfo> ops = {
      {.name = "all_reduce", .reduces = true},
      {.name = "reduce", .reduces = true, .out_of_place = false, .has_root = true},
      {.name = "broadcast", .out_of_place = false, .has_root = true},
      {.name = "gather", .has_row_per_rank = true, .in_place = false, .has_root = true},
      {.name = "all_gather", .has_row_per_rank = true},
      {.name = "scatter", .has_row_per_rank = true, .in_place = false, .has_root = true},
      {.name = "reduce_scatter", .reduces = true, .has_row_per_rank = true},
      {.name = "all_to_all", .has_row_per_rank = true, .in_place = false},
      {.name = "sendrecv", .in_place = false},
      {.name = "barrier", .in_place = false},
  };
  return ops;
}

const OpInfo& op_info(const std::string& name) {
  const auto found =
      std::find_if(all_ops().begin(), all_ops().end(), [&](const OpInfo& op) { return op.name == name; });
  TANDEM_CHECK(ValueError, found != all_ops().end(), "op_info: unknown operation '", name, "'");
  return *found;
}

int64_t row_elements(const OpInfo& op, int64_t bytes, int64_t bytes_of_element, int world) {
  if (op.name == "barrier") return 0;
  return std::max<int64_t>(bytes / bytes_of_element / (op.has_row_per_rank ? world : 1), 1);
}

double bus_factor(const OpInfo& op, int world) {
  const double fraction = static_cast<double>(world - 1) / world;
  if (op.name == "all_reduce") return 2 * fraction;
  return op.has_row_per_rank ? fraction : 1;
}

CollectiveCase::CollectiveCase(distributed::ProcessGroup& group, const OpInfo& op, DType dtype, int64_t bytes,
                               bool in_place, Device device)
    : group_(group),
      op_(op),
      dtype_(dtype),
      device_(device),
      row_(row_elements(op, bytes, size_of(dtype), group.size())) {
  const int64_t n = group.size();
  const bool gathers = op.name == "gather" || op.name == "all_gather";
  const bool scatters = op.name == "scatter" || op.name == "reduce_scatter";
  elements_ = op.has_row_per_rank ? n * row_ : row_;
  input_ = make(scatters || op.name == "all_to_all" ? n : 1);
  output_ = in_place ? input_ : make(gathers || op.name == "all_to_all" ? n : 1);
  if (in_place && op.name == "all_gather") {
    output_ = make(n);
    input_ = output_.slice(0, group.rank(), group.rank() + 1).view({row_});
  }
  if (in_place && op.name == "reduce_scatter") output_ = input_.slice(0, group.rank(), group.rank() + 1).view({row_});
}

Tensor CollectiveCase::make(int64_t rows) const {
  return empty(rows == 1 ? Shape{row_} : Shape{rows, row_}, {dtype_, device_});
}

int64_t CollectiveCase::num_bytes() const { return elements_ * size_of(dtype_); }

void CollectiveCase::call() const {
  const bool is_root = group_.rank() == 0;
  const bool in_place = output_.is_same(input_);
  const Shape by_rank{group_.size(), row_};
  // make(1) returns a 1-d tensor, so a single-rank group needs the dimension of ranks back.
  const auto rows = [&](const Tensor& t) { return t.view(by_rank); };
  if (op_.name == "all_reduce") {
    if (in_place) {
      group_.all_reduce(input_);
    } else {
      group_.all_reduce(output_, input_);
    }
  } else if (op_.name == "reduce") {
    group_.reduce(input_, 0);
  } else if (op_.name == "broadcast") {
    group_.broadcast(input_, 0);
  } else if (op_.name == "gather") {
    group_.gather(is_root ? rows(output_) : Tensor(), input_, 0);
  } else if (op_.name == "all_gather") {
    group_.all_gather(rows(output_), input_);
  } else if (op_.name == "scatter") {
    group_.scatter(output_, is_root ? rows(input_) : Tensor(), 0);
  } else if (op_.name == "reduce_scatter") {
    group_.reduce_scatter(output_, rows(input_));
  } else if (op_.name == "all_to_all") {
    group_.all_to_all(rows(output_), rows(input_));
  } else if (op_.name == "sendrecv" && group_.rank() == 0) {
    group_.send(input_, 1);
    group_.recv(output_, 1);
  } else if (op_.name == "sendrecv" && group_.rank() == 1) {
    group_.recv(output_, 0);
    group_.send(input_, 0);
  } else if (op_.name == "barrier") {
    group_.barrier();
  }
}

int64_t CollectiveCase::count_wrong() const {
  const int64_t n = group_.size();
  const int64_t rank = group_.rank();
  primitives::fill(output_, -1);
  std::vector<double> before(static_cast<size_t>(input_.numel()));
  for (size_t i = 0; i < before.size(); ++i) before[i] = first_value(static_cast<int64_t>(i), rank);
  primitives::copy(from_vector(before, input_.shape()), input_);
  call();
  const auto sum_at = [&](int64_t i) {
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) sum += first_value(i, r);
    return sum;
  };
  const auto expected = [&](int64_t i) {  // element i of the output; -1 if the operation does not write it
    const int64_t row = row_ == 0 ? 0 : i / row_;
    const int64_t column = row_ == 0 ? 0 : i % row_;
    if (op_.name == "all_reduce") return sum_at(i);
    if (op_.name == "reduce") return rank == 0 ? sum_at(i) : first_value(i, rank);
    if (op_.name == "broadcast") return first_value(i, 0);
    if (op_.name == "gather") return rank == 0 ? first_value(column, row) : -1.0;
    if (op_.name == "all_gather") return first_value(column, row);
    if (op_.name == "scatter") return first_value(rank * row_ + i, 0);
    if (op_.name == "reduce_scatter") return sum_at(rank * row_ + i);
    if (op_.name == "all_to_all") return first_value(rank * row_ + column, row);
    return rank < 2 ? first_value(i, 1 - rank) : -1.0;  // sendrecv
  };
  int64_t wrong = 0;
  const std::vector<double> got = output_.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected(static_cast<int64_t>(i));
  primitives::fill(output_, 0);
  primitives::fill(input_, 0);  // repeated in-place sums of zeros stay finite
  return wrong;
}

}  // namespace tandem::benchmarks
