// IDX, the file format of MNIST: http://yann.lecun.com/exdb/mnist (big-endian sizes, then the values, row-major).
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// The values of an IDX file of unsigned bytes, as uint8 of the file's shape.  A name that ends in ".gz" is read
/// through gzip.  Throws IoError naming the file, the field and what was expected where it cannot be read, is no IDX
/// file, holds another type than unsigned bytes, ends early, goes on after its values, or is damaged.  What a header
/// claims is compared with the size of the file before memory is taken for it.
TANDEM_API Tensor read_idx(const std::string& path);

}}}  // namespace tandem::v0::data
