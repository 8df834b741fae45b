#include <tandem/base/error.h>

#include <new>

#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

std::string error_text(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) == nullptr) return e.what();
  return str("out of memory (", e.what(),
             "): the memory limit (ulimit -v, cgroup memory.max) is reached; raise it, or use fewer ranks, workers "
             "and threads");
}

std::string with_module_scope(std::string message) {
  if (const RefPtr<ScopeName>& scope = RankContext::current().module_scope) message += "\n  in " + scope->text;
  return message;
}

}}  // namespace tandem::v0
