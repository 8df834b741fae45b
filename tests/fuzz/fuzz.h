// Functions of the fuzz targets.
//
// A target defines LLVMFuzzerTestOneInput. tools/fuzz builds it with clang's libFuzzer, which searches for failing
// inputs. The test links replay.cc instead, which runs the inputs of corpus/ and fixed mutations of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/base/function_ref.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem::testing {

/// Calls parse() and ignores IoError and DTypeError, which a parser may throw for any input. Aborts the process if
/// parse() throws another exception, or uses more memory than 64 KiB plus `factor` times the size of the input.
void fuzz(size_t size, int64_t factor, FunctionRef<void()> parse);

/// fuzz() for a parser of files: `path` is a file in memory with the bytes of the input.
void fuzz_file(const uint8_t* data, size_t size, int64_t factor, FunctionRef<void(const std::string& path)> parse);

}  // namespace tandem::testing
