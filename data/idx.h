// IDX, the file format of MNIST: http://yann.lecun.com/exdb/mnist (big-endian sizes, then the values, row-major).
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Reads an IDX file of unsigned bytes as uint8 with the file's shape; a file whose name ends in ".gz" is decompressed.
/// Throws IoError, with the file, the field and the expected value, if the file cannot be read, is not an IDX file, has
/// another type than unsigned bytes, is truncated, has bytes after its values, or is damaged. The sizes in the header
/// are compared with the size of the file before memory is allocated.
TANDEM_API Tensor read_idx(const std::string& path);

}}}  // namespace tandem::v0::data
