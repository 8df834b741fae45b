// A global locale of the C++ and the C library, as of programs with a user interface.
#pragma once

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <stdexcept>
#include <string>

#include <tandem/tests/support/temporary_folder.h>

namespace tandem::testing {

/// While in scope, the global C++ locale writes 1234.5 as "1.234,5" and true as "wahr", and the C library as "1234,5".
class ProgramLocale {
 public:
  ProgramLocale() : old_(std::locale::global({std::locale::classic(), new German})) {
    // Minimal systems have no such locale. A category file of glibc: its magic number, the number of its values, their
    // offsets, and the values ",", ".", "\3\3", ',', '.', "".
    const uint32_t numeric[] = {0x20031114, 6, 32, 34, 36, 40, 44, 33, 0x002e002c, 0x00000303, ',', '.'};
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "comma");
    write_file(folder / "comma/LC_NUMERIC", {reinterpret_cast<const char*>(numeric), sizeof numeric});
    ::setenv("LOCPATH", folder.path().c_str(), 1);
    if (std::setlocale(LC_NUMERIC, "comma") == nullptr) throw std::runtime_error("the C library refuses the locale");
  }
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
