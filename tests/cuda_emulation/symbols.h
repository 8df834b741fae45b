// Names of addresses, for reports.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_emulation {

class Arena;

/// The function at this address, demangled, from the program's symbol table.
std::string function_name(const void* function);

/// "4 bytes into the shared variable 'sum(float*)::tile' of 1024 bytes", for an address in thread-local data.
std::string shared_variable(uintptr_t address);

/// "cuda:0, 16 bytes into a block of 64 bytes".
std::string place_in_arena(const Arena& arena, const void* p);

}  // namespace cuda_emulation
