// What a header declares, read from its text: a list of all operations can so be held against the operations there are.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tandem::testing {

/// "const std::vector<Tensor>& tensors = {}" as "vector<Tensor>".
inline std::string parameter_type(const std::string& parameter) {
  std::string text = parameter.substr(0, parameter.find('='));
  for (const std::string noise : {"const ", "std::", "&"}) {
    for (size_t at = text.find(noise); at != std::string::npos; at = text.find(noise)) text.erase(at, noise.size());
  }
  const size_t begin = text.find_first_not_of(" \n"), end = text.find_last_not_of(" \n") + 1;
  if (begin == std::string::npos) return "";
  text = text.substr(begin, end - begin);
  return text.substr(0, text.find_last_of(' '));  // without the name
}

/// What stands behind each `marker` of a header, comments left out, as "name(Type, Type)"; with the namespace if that is one in
/// tandem's.
inline std::set<std::string> declared_signatures(std::string text, const std::string& marker) {
  for (size_t at = text.find("//"); at != std::string::npos; at = text.find("//")) {
    text.erase(at, text.find('\n', at) - at);
  }
  std::set<std::string> signatures;
  for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at + 1)) {
    const size_t open = text.find('(', at), name = text.find_last_of(" \n", open) + 1;
    std::string signature = text.substr(name, open - name) + '(';
    const std::string inner = "inline namespace v0 { namespace ";
    if (const size_t scope = text.rfind(inner, at); scope != std::string::npos) {
      const size_t begin = scope + inner.size();
      signature = text.substr(begin, text.find(' ', begin) - begin) + "::" + signature;
    }
    std::string parameter, types;
    for (size_t i = open + 1, depth = 1; depth > 0; ++i) {
      const char c = text.at(i);
      if (c == '(' || c == '<' || c == '{') ++depth;
      if (c == ')' || c == '>' || c == '}') --depth;
      if (depth > 1 || (depth == 1 && c != ',')) {
        parameter += c;
        continue;
      }
      const std::string type = parameter_type(parameter);
      types += (types.empty() ? "" : ", ") + type;
      parameter.clear();
    }
    signatures.insert(signature + types + ')');
  }
  return signatures;
}

/// "<signature>: no row" for what is declared and not listed, "<signature>: not declared" the other way round.
inline std::vector<std::string> differences(const std::set<std::string>& declared,
                                            const std::set<std::string>& listed) {
  std::vector<std::string> result;
  for (const std::string& signature : declared) {
    if (!listed.contains(signature)) result.push_back(signature + ": no row");
  }
  for (const std::string& signature : listed) {
    if (!declared.contains(signature)) result.push_back(signature + ": not declared");
  }
  return result;
}

}  // namespace tandem::testing
