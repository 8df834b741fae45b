// A global locale as of programs with a user interface.
#pragma once

#include <locale>
#include <string>

namespace tandem::testing {

/// While in scope, the global C++ locale writes 1234.5 as "1.234,5" and true as "wahr".
class ProgramLocale {
 public:
  ProgramLocale() : old_(std::locale::global({std::locale::classic(), new German})) {}
  ~ProgramLocale() { std::locale::global(old_); }
  ProgramLocale(const ProgramLocale&) = delete;
  ProgramLocale& operator=(const ProgramLocale&) = delete;

 private:
  struct German : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
    std::string do_truename() const override { return "wahr"; }
    std::string do_falsename() const override { return "falsch"; }
  };

  std::locale old_;
};

}  // namespace tandem::testing
