#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include <tandem/tests/cuda_emulation/arena.h>
#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

/// Calls `visit(symbol, name)` for each symbol of the running program's file until it returns true.
void each_symbol(const std::function<bool(const ElfW(Sym) &, const char*)>& visit) {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) {
    return;
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  void* map = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  if (map == MAP_FAILED) {
    return;
  }
  const auto* begin = static_cast<const char*>(map);
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(begin);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(begin + header->e_shoff);
  bool done = false;
  for (int i = 0; i < header->e_shnum && !done; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) {
      continue;
    }
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(begin + sections[i].sh_offset);
    const char* names = begin + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof(ElfW(Sym)) && !done; ++k) {
      done = visit(symbols[k], names + symbols[k].st_name);
    }
  }
  ::munmap(map, num_bytes);
}

struct Program {
  uintptr_t base = 0;
  uintptr_t thread_local_data = 0;
};

Program program() {
  Program found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& result = *static_cast<Program*>(data);
        result.base = info->dlpi_addr;
        result.thread_local_data = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
        return 1;  // the first entry is the program itself
      },
      &found);
  return found;
}

}  // namespace

std::string function_name(const void* function) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(function) - program().base;
  std::string name;
  each_symbol([&](const ElfW(Sym) & symbol, const char* text) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value == address) {
      name = demangled(text);
    }
    return !name.empty();
  });
  if (name.empty()) {
    char text[32];
    std::snprintf(text, sizeof(text), "%p", function);
    name = text;
  }
  return name;
}

std::string shared_variable(uintptr_t address) {
  const uintptr_t offset = address - program().thread_local_data;
  std::string text;
  each_symbol([&](const ElfW(Sym) & symbol, const char* name) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && offset - symbol.st_value < symbol.st_size) {
      text = std::to_string(offset - symbol.st_value) + " bytes into the shared variable '" + demangled(name) +
             "' of " + std::to_string(symbol.st_size) + " bytes";
    }
    return !text.empty();
  });
  return text.empty() ? "shared memory outside of all variables" : text;
}

std::string place_in_arena(const Arena& arena, const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  if (arena.was_freed(p)) {
    return arena.name() + ", in a block that was freed";
  }
  const auto block = arena.block_before(p);
  if (!block) {
    return arena.name() + ", before all blocks";
  }
  const uintptr_t inside = address - block->begin;
  const std::string of = " a block of " + std::to_string(block->num_bytes) + " bytes";
  if (inside < block->num_bytes) {
    return arena.name() + ", " + std::to_string(inside) + " bytes into" + of;
  }
  return arena.name() + ", " + std::to_string(inside - block->num_bytes) + " bytes past the end of" + of;
}

}  // namespace cuda_emulation
