// Macros for visibility, GPU functions and public operations.
#pragma once

/// Marks a symbol that programs may link against; all other symbols have hidden visibility.
#define TANDEM_API [[gnu::visibility("default")]]

/// Marks functions that GPU kernels also call.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

/// Marks a public operation in ops/*.h. Tools and tests search for this macro.
#define TANDEM_OP TANDEM_API
