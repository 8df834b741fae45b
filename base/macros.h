// Macros that every header needs.
#pragma once

/// Marks a symbol that users of an installed tandem may link against; everything else has hidden visibility.
#define TANDEM_API [[gnu::visibility("default")]]

/// Marks a public operation in ops/*.h.  Tools and tests read the lines that carry it.
#define TANDEM_OP TANDEM_API
