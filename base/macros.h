// Macros for visibility, GPU functions and public operations.
#pragma once

#include <version>

#ifndef __cpp_lib_source_location
#error "tandem needs C++20 (-std=c++20) and g++ 12, clang 16 or a newer compiler"
#endif

/// Marks a symbol that programs may link against; all other symbols have hidden visibility.
#define TANDEM_API [[gnu::visibility("default")]]

/// Marks functions that GPU kernels also call.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

/// Before a loop whose iterations are independent, although compilers cannot see that its memory does not overlap.
/// clang checks this before the loop: its pragma warns about each loop that it cannot vectorize.
#ifdef __clang__
#define TANDEM_IVDEP
#else
#define TANDEM_IVDEP _Pragma("GCC ivdep")
#endif

/// Marks a public operation in ops/*.h. Tools and tests search for this macro.
#define TANDEM_OP TANDEM_API
