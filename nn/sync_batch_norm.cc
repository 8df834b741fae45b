#include <tandem/nn/sync_batch_norm.h>

#include <limits>
#include <utility>

#include <tandem/distributed/functional.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

class GroupExchange : public BatchNormExchange {
 public:
  GroupExchange(std::shared_ptr<distributed::ProcessGroup> group, std::string name)
      : group_(std::move(group)), name_(std::move(name)) {}

  Tensor gather(const Tensor& moments) override {
    return distributed::functional::all_gather(moments, group_, {.name = "moments of " + name_});
  }

  void sum(const Tensor& sums) override {
    group_->all_reduce(sums, distributed::ReduceOp::kSum, {.name = "gradient sums of " + name_});
  }

 private:
  std::shared_ptr<distributed::ProcessGroup> group_;
  std::string name_;
};

}  // namespace

std::shared_ptr<BatchNormExchange> exchange_over(std::shared_ptr<distributed::ProcessGroup> group, std::string name) {
  TANDEM_CHECK(ValueError, group, "exchange_over: group is null");
  return std::make_shared<GroupExchange>(std::move(group), std::move(name));
}

SyncBatchNorm::SyncBatchNorm(int64_t num_features, std::shared_ptr<distributed::ProcessGroup> group,
                             const BatchNormOptions& options)
    : BatchNormBase("SyncBatchNorm", {2, std::numeric_limits<int64_t>::max(), "[N, C] or [N, C, ...]"}, num_features,
                    options),
      group_(std::move(group)) {
  TANDEM_CHECK(ValueError, group_, "SyncBatchNorm: group is null");
}

Tensor SyncBatchNorm::normalize(const Tensor& input) const {
  check_input(input);
  Tensor result =
      sync_batch_norm(input, running_mean, running_var, weight, bias,
                      exchange_over(group_, str(type_name(), " '", path(), "'")), call_momentum(), options().eps);
  count();
  return result;
}

Tensor SyncBatchNorm::forward(const Tensor& input) {
  if (!is_training()) return BatchNormBase::forward(input);
  return activate(normalize(input), options().activation);
}

Tensor SyncBatchNorm::add_relu(const Tensor& input, const Tensor& residual) {
  if (!is_training()) return BatchNormBase::add_relu(input, residual);
  return call(input, [&](const Tensor& x) {
    TANDEM_CHECK(DeviceError, residual.device() == x.device(), "SyncBatchNorm: the residual (", describe(residual),
                 ") and the input (", describe(x), ") are on different devices; move it with residual.to(", x.device(),
                 ")");
    return relu(normalize(x) + residual);
  });
}

}}}  // namespace tandem::v0::nn
