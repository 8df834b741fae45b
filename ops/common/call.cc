#include <tandem/ops/common/call.h>

#include <utility>

#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

void cast(CastPolicy policy, Arguments arguments) {
  if (RankContext::current().autocast < 0) [[likely]]
    return;
  SmallVector<Tensor*, 4> variables;
  for (const Argument& argument : arguments) {
    if (argument.variable != nullptr) variables.push_back(argument.variable);
  }
  autocast(policy, variables);
}

}  // namespace

CallOperands::CallOperands(const char* name, Arguments arguments) : op(name) {
  for (const Argument& argument : arguments) {
    if (!argument.optional || argument.tensor->defined()) operands.push_back({argument.name, *argument.tensor});
  }
}

Call::Call(CallOperands all, DTypes dtypes)
    : CallOperands(std::move(all)), KernelContext(check_same_device(op, operands)) {
  if (dtypes == DTypes::kSame || dtypes == DTypes::kSameFloating) check_same_dtype(op, operands);
  if (dtypes == DTypes::kFloating || dtypes == DTypes::kSameFloating) check_floating(op, operands[0]);
}

Call::Call(const char* name, Arguments arguments, DTypes dtypes) : Call(CallOperands(name, arguments), dtypes) {}

Call::Call(const char* name, CastPolicy policy, Arguments arguments, DTypes dtypes)
    : Call(name, (cast(policy, arguments), arguments), dtypes) {}

}}}  // namespace tandem::v0::ops
