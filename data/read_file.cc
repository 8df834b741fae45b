#include <tandem/data/read_file.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include <tandem/base/error.h>

namespace tandem::inline v0::data {

std::vector<uint8_t> read_file(const char* op, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  TANDEM_CHECK(IoError, file.is_open(), op, ": cannot open '", path, "': ", std::strerror(errno));
  const std::streamoff size = file.tellg();
  // A folder can be opened, and then claims to be endless.
  TANDEM_CHECK(IoError, size >= 0 && size < std::numeric_limits<std::streamoff>::max(), op, ": cannot read '", path,
               "': it has no size (is it a folder?)");
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  TANDEM_CHECK(IoError, file.gcount() == size, op, ": cannot read '", path, "': got ", file.gcount(), " of ", size,
               " bytes");
  return bytes;
}

}  // namespace tandem::inline v0::data
