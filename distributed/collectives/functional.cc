#include <tandem/distributed/functional.h>

#include <numeric>
#include <utility>

#include <tandem/autograd/function.h>
#include <tandem/distributed/init.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace functional {

namespace {

using Group = std::shared_ptr<ProcessGroup>;
using Splits = std::vector<int64_t>;

/// A collective whose backward is a call of another one.
template <class F>
class CollectiveFunction : public autograd::Function<F> {
 protected:
  /// Begins forward. Returns the options of its collective: the name also says whether this rank takes part in
  /// backward, which the consistency check then compares.
  CollectiveOptions begin(const Group& group, const CollectiveOptions& options) {
    group_ = group;
    backward_options_ = options;
    backward_options_.name = options.name.empty() ? "gradient" : "gradient of " + options.name;
    CollectiveOptions result = options;
    if (this->needs_input_grad(0)) result.name += result.name.empty() ? "requires grad" : ", requires grad";
    return result;
  }

  Group group_;
  CollectiveOptions backward_options_ = {.where = {}};
};

struct AllReduce : CollectiveFunction<AllReduce> {
  Tensor forward(const Tensor& input, ReduceOp op, const Group& group, const CollectiveOptions& options) {
    op_ = op;
    Tensor output = empty(input.shape(), input.options());
    group->all_reduce(output, input, op, begin(group, options));
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    return {all_reduce(grads[0], op_, group_, backward_options_)};
  }
  ReduceOp op_ = ReduceOp::kSum;
};

struct AllGather : CollectiveFunction<AllGather> {
  Tensor forward(const Tensor& input, const Group& group, const CollectiveOptions& options) {
    Shape shape = input.shape();
    shape.insert(0, group->size());
    Tensor output = empty(shape, input.options());
    group->all_gather(output, input, begin(group, options));
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    return {reduce_scatter(grads[0], ReduceOp::kSum, group_, backward_options_)};
  }
};

struct ReduceScatter : CollectiveFunction<ReduceScatter> {
  Tensor forward(const Tensor& input, ReduceOp op, const Group& group, const CollectiveOptions& options) {
    op_ = op;
    const Shape& shape = input.shape();
    Tensor output = empty(shape.empty() ? shape : Shape(shape.begin() + 1, shape.end()), input.options());
    group->reduce_scatter(output, input, op, begin(group, options));
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    const Tensor all = all_gather(grads[0], group_, backward_options_);
    return {op_ == ReduceOp::kAvg ? all / group_->size() : all};
  }
  ReduceOp op_ = ReduceOp::kSum;
};

/// On root: the sum over the ranks; on the others 0. The gradient of broadcast, which is its own gradient.
struct Reduce : CollectiveFunction<Reduce> {
  Tensor forward(const Tensor& input, int root, const Group& group, const CollectiveOptions& options) {
    root_ = root;
    const bool is_root = group->rank() == root;
    const Tensor sum = is_root ? input.clone() : input;
    group->reduce(sum, root, ReduceOp::kSum, begin(group, options));
    return is_root ? sum : zeros(input.shape(), input.options());
  }
  TensorList backward(const TensorList& grads) override {
    return {broadcast(grads[0], root_, group_, backward_options_)};
  }
  int root_ = 0;
};

struct Broadcast : CollectiveFunction<Broadcast> {
  Tensor forward(const Tensor& input, int root, const Group& group, const CollectiveOptions& options) {
    root_ = root;
    Tensor output = input.clone();
    group->broadcast(output, root, begin(group, options));
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    return {Reduce::apply(grads[0], root_, group_, backward_options_)};
  }
  int root_ = 0;
};

struct AllToAll : CollectiveFunction<AllToAll> {
  Tensor forward(const Tensor& input, const Splits& output_splits, const Splits& input_splits, const Group& group,
                 const CollectiveOptions& options) {
    output_splits_ = output_splits;
    input_splits_ = input_splits;
    Shape shape = input.shape();
    if (!shape.empty()) shape[0] = std::accumulate(output_splits.begin(), output_splits.end(), int64_t{0});
    Tensor output = empty(shape, input.options());
    group->all_to_all(output, input, output_splits, input_splits, begin(group, options));
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    return {all_to_all(grads[0], input_splits_, output_splits_, group_, backward_options_)};
  }
  Splits output_splits_, input_splits_;
};

Group or_default(const Group& group) { return group ? group : default_group(); }

void check_op(const char* name, ReduceOp op) {
  TANDEM_CHECK(ValueError, op == ReduceOp::kSum || op == ReduceOp::kAvg, "functional::", name, ": op is ",
               to_string(op), ", expected sum or avg; other operators have no gradient here, use ProcessGroup::", name);
}

}  // namespace

Tensor all_reduce(const Tensor& input, ReduceOp op, const Group& group, CollectiveOptions options) {
  check_op("all_reduce", op);
  return AllReduce::apply(input, op, or_default(group), options);
}

Tensor all_gather(const Tensor& input, const Group& group, CollectiveOptions options) {
  return AllGather::apply(input, or_default(group), options);
}

Tensor reduce_scatter(const Tensor& input, ReduceOp op, const Group& group, CollectiveOptions options) {
  check_op("reduce_scatter", op);
  return ReduceScatter::apply(input, op, or_default(group), options);
}

Tensor broadcast(const Tensor& input, int root, const Group& group, CollectiveOptions options) {
  return Broadcast::apply(input, root, or_default(group), options);
}

Tensor all_to_all(const Tensor& input, Splits output_splits, Splits input_splits, const Group& group,
                  CollectiveOptions options) {
  const Group members = or_default(group);
  if (output_splits.empty() && input_splits.empty()) {
    const int64_t size = members->size();
    TANDEM_CHECK(ShapeError, input.dim() > 0 && input.size(0) % size == 0, "functional::all_to_all: input is ",
                 describe(input), ", expected a dimension 0 that is a multiple of ", size,
                 " ranks; pass output_splits and input_splits");
    output_splits = input_splits = Splits(static_cast<size_t>(size), input.size(0) / size);
  }
  return AllToAll::apply(input, output_splits, input_splits, members, options);
}

}}}}  // namespace tandem::v0::distributed::functional
