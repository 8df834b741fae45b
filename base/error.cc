#include <tandem/base/error.h>

#include <tandem/base/rank_context.h>

namespace tandem::inline v0 {

std::string with_module_scope(std::string message) {
  if (const RefPtr<ScopeName>& scope = RankContext::current().module_scope) message += "\n  in " + scope->text;
  return message;
}

}  // namespace tandem::inline v0
