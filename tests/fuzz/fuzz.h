// What the fuzz targets share.
//
// A target defines LLVMFuzzerTestOneInput.  tools/fuzz builds it with clang's libFuzzer, which looks for inputs that
// fail; the ordinary test links replay.cc instead, which runs the inputs of corpus/ and fixed mutations of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/base/function_ref.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem::testing {

/// Calls parse and swallows IoError and DTypeError, which a parser may throw for any input.  Ends the process if it throws
/// anything else, or takes more memory than 64 KiB and `factor` times the size of the input.
void fuzz(size_t size, int64_t factor, FunctionRef<void()> parse);

/// The same for a parser of files: `path` names a file of these bytes, in memory.
void fuzz_file(const uint8_t* data, size_t size, int64_t factor, FunctionRef<void(const std::string& path)> parse);

}  // namespace tandem::testing
