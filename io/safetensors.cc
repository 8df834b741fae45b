#include <tandem/io/safetensors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string_view>

#include <tandem/base/file.h>
#include <tandem/io/atomic_file.h>
#include <tandem/io/digest_writers.h>
#include <tandem/io/json.h>
#include <tandem/io/safetensors_header.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian; values are written without conversion");

constexpr std::string_view kAliasPrefix = "alias:";
constexpr size_t kHeaderAlignment = 8;

/// Whether two tensors are the same elements in the same memory, with the same shape and strides.
bool is_alias(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (a.num_elements() > 0 && a.data_ptr() == b.data_ptr() && a.dtype() == b.dtype() &&
                          a.device() == b.device() && a.shape() == b.shape() && a.strides() == b.strides());
}

void check_name(const std::string& name) {
  TANDEM_CHECK(ValueError, !name.empty(), "save_safetensors: a tensor's name is empty");
  TANDEM_CHECK(ValueError, name != "__metadata__", "save_safetensors: a tensor cannot be named '__metadata__'");
  TANDEM_CHECK(ValueError, name.find('\0') == std::string::npos, "save_safetensors: the name that begins with '",
               name.c_str(), "' contains a NUL");
  TANDEM_CHECK(ValueError, is_valid_utf8(name), "save_safetensors: the name '", name, "' is not valid UTF-8");
}

/// `tensor` if it is row-major on a CPU, otherwise a row-major copy on the CPU.
Tensor row_major_on_cpu(const Tensor& tensor) {
  if (tensor.device().is_cpu() && tensor.is_contiguous()) return tensor;
  Tensor copy = empty(tensor.shape(), {tensor.dtype()});
  primitives::copy(tensor, copy);
  return copy;
}

}  // namespace

FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  Header header;
  header.metadata = metadata;
  for (const auto& [key, value] : metadata) {
    TANDEM_CHECK(ValueError, is_valid_utf8(key) && is_valid_utf8(value), "save_safetensors: the metadata '", key,
                 "' is not valid UTF-8");
    TANDEM_CHECK(ValueError, !key.starts_with(kAliasPrefix), "save_safetensors: the metadata key '", key,
                 "' begins with 'alias:', which is reserved for tied tensors");
  }

  std::set<std::string> names;
  NamedTensors written;
  std::multimap<const void*, size_t> by_address;  // into written
  for (const auto& [name, tensor] : tensors) {
    check_name(name);
    TANDEM_CHECK(ValueError, names.insert(name).second, "save_safetensors: the name '", name, "' occurs twice");
    TANDEM_CHECK(StateError, tensor.defined(), "save_safetensors: the tensor '", name, "' is undefined");
    const auto [first, last] = by_address.equal_range(tensor.data_ptr());
    const auto same = std::find_if(first, last, [&, &added = tensor](const auto& candidate) {
      return is_alias(written[candidate.second].second, added);
    });
    if (same != last) {
      header.metadata[std::string(kAliasPrefix) + name] = written[same->second].first;
    } else {
      by_address.emplace(tensor.data_ptr(), written.size());
      written.emplace_back(name, tensor);
    }
  }
  std::sort(written.begin(), written.end(), [](const auto& a, const auto& b) {
    const int rank_a = storage_rank(a.second.dtype());
    const int rank_b = storage_rank(b.second.dtype());
    return rank_a != rank_b ? rank_a > rank_b : a.first < b.first;
  });

  int64_t position = 0;
  for (const auto& [name, tensor] : written) {
    header.entries.push_back({name, tensor.dtype(), tensor.shape(), position, position + tensor.num_bytes()});
    position += tensor.num_bytes();
  }
  std::string text = write_header(header);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  TANDEM_CHECK(ValueError, static_cast<int64_t>(text.size()) <= kMaxHeaderBytes, "save_safetensors: the header has ",
               text.size(), " bytes, the format allows at most ", kMaxHeaderBytes);

  AtomicFile file("save_safetensors", path);
  const uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : written) {
    const Tensor values = row_major_on_cpu(tensor);
    file.write(values.data_ptr(), static_cast<size_t>(values.num_bytes()));
  }
  file.commit();
  return file.digest();
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  write_safetensors(path, tensors, metadata);
}

SafetensorsFile load_safetensors(const std::string& path) {
  const InputFile file("load_safetensors", path);
  uint64_t length = 0;
  constexpr auto kLengthBytes = static_cast<int64_t>(sizeof length);
  TANDEM_CHECK(IoError, file.size() >= kLengthBytes, "load_safetensors: '", path, "' has ", file.size(),
               " bytes, expected at least 8");
  file.read(&length, 0, kLengthBytes);
  TANDEM_CHECK(IoError, length <= static_cast<uint64_t>(kMaxHeaderBytes), "load_safetensors: '", path,
               "' claims a header of ", length, " bytes, the format allows at most ", kMaxHeaderBytes);
  const auto header_bytes = static_cast<int64_t>(length);
  const int64_t data_start = kLengthBytes + header_bytes;
  TANDEM_CHECK(IoError, data_start <= file.size(), "load_safetensors: '", path, "' claims a header of ", length,
               " bytes, the file has ", file.size() - kLengthBytes, " after the length");
  std::string text(length, '\0');
  file.read(text.data(), kLengthBytes, header_bytes);
  const Header header = parse_header(path, text, file.size() - data_start);

  SafetensorsFile result;
  std::map<std::string, Tensor> by_name;
  for (const HeaderEntry& entry : header.entries) {
    Tensor tensor = empty(entry.shape, {entry.dtype});
    file.read(tensor.data_ptr(), data_start + entry.begin, entry.end - entry.begin);
    if (entry.dtype == kBool) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.data_ptr());
      const bool valid = std::all_of(bytes, bytes + tensor.num_elements(), [](uint8_t byte) { return byte <= 1; });
      TANDEM_CHECK(IoError, valid, "load_safetensors: '", path, "': tensor '", entry.name,
                   "' of bool has a byte that is neither 0 nor 1");
    }
    by_name[entry.name] = tensor;
    result.tensors.emplace_back(entry.name, std::move(tensor));
  }
  for (const auto& [key, value] : header.metadata) {
    if (!key.starts_with(kAliasPrefix)) {
      result.metadata[key] = value;
      continue;
    }
    const std::string alias = key.substr(kAliasPrefix.size());
    const auto target = by_name.find(value);
    TANDEM_CHECK(IoError, target != by_name.end(), "load_safetensors: '", path, "': '", alias, "' is an alias of '",
                 value, "', which is not in the file");
    TANDEM_CHECK(IoError, !by_name.contains(alias), "load_safetensors: '", path, "': '", alias,
                 "' is both a tensor and an alias");
    result.tensors.emplace_back(alias, target->second);
  }
  return result;
}

}}}  // namespace tandem::v0::io
