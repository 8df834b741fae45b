// NumPy's .npy files, each with one array (numpy.lib.format).
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace io {

/// Writes a tensor (any device, any shape and strides) in C order for numpy.load, in format version 1.0. The file is
/// replaced atomically, as by save_safetensors.
///
/// Throws DTypeError for bfloat16, which the format does not have (save float32, or use save_safetensors); ShapeError
/// for more than 64 dimensions, NumPy's limit; StateError for an undefined tensor; IoError with the path and the
/// system's reason. After an error `path` is unchanged.
TANDEM_API void save_npy(const std::string& path, const Tensor& tensor);

/// Reads a file of format version 1.0, 2.0 or 3.0, in C or Fortran order, of little-endian bool, uint8, int8, int16,
/// int32, int64, float16, float32 or float64. The result has the shape of the file and is row-major on the CPU.
///
/// Throws IoError, with the path and the reason, if the file cannot be read or violates the format: the magic string,
/// the version, the header (a dictionary of "descr", "fortran_order" and "shape" of at most 10,000 bytes and 64
/// dimensions, NumPy's limits), the size of the data, or a bool that is neither 0 nor 1. Throws DTypeError for
/// objects, texts, records, big-endian numbers and other dtypes that tandem does not support.
TANDEM_API Tensor load_npy(const std::string& path);

}}}  // namespace tandem::v0::io
