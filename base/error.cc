#include <tandem/base/error.h>

#include <locale>
#include <new>
#include <ostream>

#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

void detail::set_format(std::ostream& out) {
  out.imbue(std::locale::classic());
  out << std::boolalpha;
}

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
