// NumPy's .npy files: one array each (numpy.lib.format).
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace io {

/// Writes a tensor (any device, any strides) in C order, so that numpy.load reads it.  The file appears whole or not at all.  Throws DTypeError for bfloat16, which the format does not
/// have (save it as float32, or with save_safetensors); StateError for an undefined tensor; IoError with the path and
/// the system's reason.
TANDEM_API void save_npy(const std::string& path, const Tensor& tensor);

/// Reads a file of format version 1, 2 or 3 in C or Fortran order: bool, uint8, int32, int64, float16, float32 or
/// float64, little-endian.  Throws IoError naming the path and what is wrong where the file deviates from the format:
/// its magic string, version, header (at most 10,000 bytes, as NumPy's own limit is: the dictionary of "descr",
/// "fortran_order" and "shape"), a size that is not exactly what the shape needs, or a bool that is neither 0 nor 1.
/// Throws DTypeError for an element type that tandem does not have: objects, texts, records, big-endian numbers.
TANDEM_API Tensor load_npy(const std::string& path);

}}}  // namespace tandem::v0::io
