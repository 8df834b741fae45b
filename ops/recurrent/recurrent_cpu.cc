// CPU kernels of recurrent layers.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/recurrent/recurrent_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Calls unit.operator()<T>(row, j) for each unit of each row, with T = float or double.
template <class Step, class F>
void for_units(const Step& step, const F& unit) {
  constexpr int64_t kGrain = 1 << 12;  // units per piece of parallel work
  const auto run = [&]<class T>() {
    parallel_for(step.rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, step.hidden)),
                 [&](int64_t begin, int64_t end) {
                   run_wide([=] {
                     for (int64_t row = begin; row < end; ++row) {
                       TANDEM_IVDEP
                       for (int64_t j = 0; j < step.hidden; ++j) unit.template operator()<T>(step, row, j);
                     }
                   });
                 });
  };
  step.dtype == kFloat64 ? run.template operator()<double>() : run.template operator()<float>();
}

}  // namespace

void recurrent_step(const KernelContext&, const RecurrentStep& step) {
  visit_kind(step.kind, [&]<RecurrentKind kind>() {
    for_units(step,
              []<class T>(const RecurrentStep& s, int64_t row, int64_t j) { recurrent_unit<kind, T>(s, row, j); });
  });
}

void recurrent_step_backward(const KernelContext&, const RecurrentBackwardStep& step) {
  visit_kind(step.kind, [&]<RecurrentKind kind>() {
    for_units(step, []<class T>(const RecurrentBackwardStep& s, int64_t row, int64_t j) {
      recurrent_unit_backward<kind, T>(s, row, j);
    });
  });
}

RecurrentMemory recurrent_memory(const KernelContext&, const RecurrentProblem&) { return {}; }

bool recurrent_pass(const KernelContext&, const RecurrentProblem&, const RecurrentMemory&, const RecurrentPass&) {
  return false;
}

}}}  // namespace tandem::v0::cpu
