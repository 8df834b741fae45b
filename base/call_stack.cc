#include <tandem/base/call_stack.h>

#include <cxxabi.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include <tandem/base/error.h>

// Of <backtrace.h>, which is in GCC's own folder, where other compilers do not look.
extern "C" {
struct backtrace_state;
using ErrorCallback = void(void*, const char* message, int code);
backtrace_state* backtrace_create_state(const char* program, int threaded, ErrorCallback*, void*);
int backtrace_simple(backtrace_state*, int skip, int (*)(void*, uintptr_t), ErrorCallback*, void*);
int backtrace_pcinfo(backtrace_state*, uintptr_t, int (*)(void*, uintptr_t, const char*, int, const char*),
                     ErrorCallback*, void*);
int backtrace_syminfo(backtrace_state*, uintptr_t, void (*)(void*, uintptr_t, const char*, uintptr_t, uintptr_t),
                      ErrorCallback*, void*);
}

namespace tandem { inline namespace v0 {

namespace {

void ignore_error(void*, const char*, int) {}

backtrace_state* state() {
  static backtrace_state* const state = backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  return state;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

/// The name of a function without its result type, parameters and qualifiers: "ns::f<int>" for
/// "int ns::f<int>(int) const".
std::string name_of(const std::string& function) {
  int depth = 0;
  size_t end = function.size();
  for (size_t i = function.rfind(')') + 1; i-- > 0;) {  // the parameters
    if (function[i] == ')') ++depth;
    if (function[i] == '(' && --depth == 0) {
      end = i;
      break;
    }
  }
  size_t begin = 0;
  for (size_t i = 0; i < end; ++i) {
    if (function[i] == '<' || function[i] == '(') ++depth;
    if (function[i] == '>' || function[i] == ')') --depth;
    if (function[i] == ' ' && depth == 0) begin = i + 1;
  }
  return function.substr(begin, end - begin);
}

/// Whether a function belongs to the library, or to the standard library, through which the library calls itself.
bool is_internal(const std::string& name) { return name.rfind("tandem::v0::", 0) == 0 || name.rfind("std::", 0) == 0; }

/// The innermost function outside the library.
struct Search {
  std::string symbol;  ///< name of the function that contains the current address; "" if unknown
  std::string text;    ///< "" until found

  /// Returns 1, which ends the search, if the function is outside the library. For lambdas and functions of local
  /// classes, debug information has a name without the scope; the name of the symbol is used for them.
  int add(const char* file, int line, const char* name) {
    const bool is_complete = name != nullptr && std::string_view(name).substr(0, 2) == "_Z";
    const std::string function = name_of(is_complete ? demangled(name) : symbol);
    if (function.empty() || is_internal(function)) return 0;
    text = function;
    if (file != nullptr) text = str(std::filesystem::path(file).filename().string(), ":", line, " in ", text);
    return 1;
  }
};

}  // namespace

CallStack CallStack::here() {
  CallStack stack;
  const auto add = [](void* list, uintptr_t address) {
    static_cast<std::vector<uintptr_t>*>(list)->push_back(address);
    return 0;
  };
  backtrace_simple(state(), /*skip=*/1, add, ignore_error, &stack.addresses_);
  return stack;
}

std::string CallStack::caller() const {
  Search search;
  for (const uintptr_t address : addresses_) {
    const auto set_symbol = [](void* result, uintptr_t, const char* symbol, uintptr_t, uintptr_t) {
      static_cast<Search*>(result)->symbol = symbol != nullptr ? demangled(symbol) : "";
    };
    const auto add = [](void* result, uintptr_t, const char* file, int line, const char* function) {
      return static_cast<Search*>(result)->add(file, line, function);
    };
    backtrace_syminfo(state(), address, set_symbol, ignore_error, &search);
    backtrace_pcinfo(state(), address, add, ignore_error, &search);
    if (!search.text.empty()) break;
  }
  return search.text;
}

}}  // namespace tandem::v0
