#include <tandem/base/type_name.h>

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace tandem { inline namespace v0 {

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  const std::string full = status == 0 ? demangled.get() : type.name();
  // The part after the last "::" that is not in template arguments or in "(anonymous namespace)".
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] == '<' || full[i] == '(') ++depth;
    if (full[i] == '>' || full[i] == ')') --depth;
    if (depth == 0 && full.compare(i, 2, "::") == 0) begin = i + 2;
  }
  return full.substr(begin);
}

}}  // namespace tandem::v0
