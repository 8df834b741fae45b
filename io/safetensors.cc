#include <tandem/io/safetensors.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string_view>
#include <utility>

#include <tandem/base/file.h>
#include <tandem/io/atomic_file.h>
#include <tandem/io/digest_writers.h>
#include <tandem/io/distinct_tensors.h>
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

/// `tensor` if it is row-major on a CPU, otherwise a row-major copy on the CPU.
Tensor row_major_on_cpu(const Tensor& tensor) {
  if (tensor.device().is_cpu() && tensor.is_contiguous()) return tensor;
  Tensor copy = empty(tensor.shape(), {tensor.dtype()});
  primitives::copy(tensor, copy);
  return copy;
}

/// The contents of a file in memory, with the functions of InputFile.
struct Bytes {
  std::string_view bytes;
  int64_t size() const { return static_cast<int64_t>(bytes.size()); }
  void read(void* out, int64_t offset, int64_t num_bytes) const {
    std::copy_n(bytes.data() + offset, num_bytes, static_cast<char*>(out));
  }
};

/// A tensor of a file whose data begins at byte `data_start`: a view of `mapped`, or a copy if `mapped` is null or the
/// tensor's bytes are not aligned to its elements.
template <class Source>
Tensor load_tensor(const Source& file, const std::shared_ptr<std::byte>& mapped, int64_t data_start,
                   const HeaderEntry& entry) {
  const int64_t begin = data_start + entry.begin;
  if (mapped != nullptr && begin % size_of(entry.dtype) == 0)
    return from_blob(mapped.get() + begin, entry.shape, [mapped](void*) {}, {entry.dtype});
  Tensor tensor = empty(entry.shape, {entry.dtype});
  file.read(tensor.data_ptr(), begin, entry.end - entry.begin);
  return tensor;
}

/// A file before it is written: its length field and header, and the tensors that follow.
struct Contents {
  std::string start;
  NamedTensors tensors;
};

/// Checks the arguments of save_safetensors.
Contents contents_of(const NamedTensors& tensors, const Metadata& metadata) {
  Header header;
  header.metadata = metadata;
  for (const auto& [key, value] : metadata) {
    TANDEM_CHECK(ValueError, is_valid_utf8(key) && is_valid_utf8(value), "save_safetensors: the metadata '", key,
                 "' is not valid UTF-8");
    TANDEM_CHECK(ValueError, !key.starts_with(kAliasPrefix), "save_safetensors: the metadata key '", key,
                 "' begins with 'alias:', which is reserved for tied tensors");
  }

  auto [written, aliases] = distinct_tensors("save_safetensors", tensors);
  for (const auto& [alias, name] : aliases) header.metadata[std::string(kAliasPrefix) + alias] = name;
  std::sort(written.begin(), written.end(), [](const auto& a, const auto& b) {
    const int rank_a = storage_rank(a.second.dtype());
    const int rank_b = storage_rank(b.second.dtype());
    return rank_a != rank_b ? rank_a > rank_b : a.first < b.first;
  });

  TANDEM_CHECK(ValueError, written.size() <= kMaxTensors, "save_safetensors: ", written.size(),
               " tensors, load_safetensors supports at most ", kMaxTensors, " in a file; use save_pretrained");
  int64_t position = 0;
  for (const auto& [name, tensor] : written) {
    header.entries.push_back({name, tensor.dtype(), tensor.shape(), position, position + tensor.num_bytes()});
    position += tensor.num_bytes();
  }
  std::string text = write_header(header);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  TANDEM_CHECK(ValueError, static_cast<int64_t>(text.size()) <= kMaxHeaderBytes, "save_safetensors: the header has ",
               text.size(), " bytes, the format allows at most ", kMaxHeaderBytes);

  const uint64_t length = text.size();
  return {std::string(reinterpret_cast<const char*>(&length), sizeof length) + text, std::move(written)};
}

/// Calls put(data, num_bytes) with the pieces of the file, in order.
template <class Put>
void write(const Contents& contents, const Put& put) {
  put(contents.start.data(), contents.start.size());
  for (const auto& [name, tensor] : contents.tensors) {
    const Tensor values = row_major_on_cpu(tensor);
    put(values.data_ptr(), static_cast<size_t>(values.num_bytes()));
  }
}

template <class Source>
SafetensorsFile load(const Source& file, const std::string& path, const std::shared_ptr<std::byte>& mapped) {
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
  Header header = parse_header(path, text, file.size() - data_start);

  SafetensorsFile result;
  std::map<std::string, Tensor> by_name;
  for (HeaderEntry& entry : header.entries) {
    Tensor tensor = load_tensor(file, mapped, data_start, entry);
    if (entry.dtype == kBool) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.data_ptr());
      const bool valid = std::all_of(bytes, bytes + tensor.numel(), [](uint8_t byte) { return byte <= 1; });
      TANDEM_CHECK(IoError, valid, "load_safetensors: '", path, "': tensor '", entry.name,
                   "' of bool has a byte that is neither 0 nor 1");
    }
    by_name[entry.name] = tensor;
    result.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  const std::map<std::string, std::string> unsupported(header.unsupported.begin(), header.unsupported.end());
  result.skipped = std::move(header.unsupported);
  for (auto& [key, value] : header.metadata) {
    if (!key.starts_with(kAliasPrefix)) {
      result.metadata.emplace(key, std::move(value));
      continue;
    }
    std::string alias = key.substr(kAliasPrefix.size());
    TANDEM_CHECK(IoError, !by_name.contains(alias) && !unsupported.contains(alias), "load_safetensors: '", path, "': '",
                 alias, "' is both a tensor and an alias");
    if (const auto skipped = unsupported.find(value); skipped != unsupported.end()) {
      result.skipped.emplace_back(std::move(alias), skipped->second);
      continue;
    }
    const auto target = by_name.find(value);
    TANDEM_CHECK(IoError, target != by_name.end(), "load_safetensors: '", path, "': '", alias, "' is an alias of '",
                 value, "', which is not in the file");
    result.tensors.emplace_back(std::move(alias), target->second);
  }
  return result;
}

}  // namespace

FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const Contents contents = contents_of(tensors, metadata);
  AtomicFile file("save_safetensors", path);
  write(contents, [&](const void* data, size_t num_bytes) { file.write(data, num_bytes); });
  file.commit();
  return file.digest();
}

FileDigest write_safetensors_bytes(const std::string& path, std::string_view bytes) {
  AtomicFile file("save_safetensors", path);
  file.write(bytes.data(), bytes.size());
  file.commit();
  return file.digest();
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  write_safetensors(path, tensors, metadata);
}

std::string safetensors_bytes(const NamedTensors& tensors, const Metadata& metadata) {
  const Contents contents = contents_of(tensors, metadata);
  size_t size = contents.start.size();
  for (const auto& [name, tensor] : contents.tensors) size += static_cast<size_t>(tensor.num_bytes());
  std::string bytes;
  bytes.reserve(size);
  write(contents, [&](const void* data, size_t num_bytes) { bytes.append(static_cast<const char*>(data), num_bytes); });
  return bytes;
}

SafetensorsFile load_safetensors(const std::string& path, const LoadSafetensorsOptions& options) {
  const InputFile file("load_safetensors", path);
  return load(file, path, options.mmap ? file.map() : nullptr);
}

SafetensorsFile load_safetensors_bytes(std::string_view bytes, const std::string& name) {
  return load(Bytes{bytes}, name, nullptr);
}

}}}  // namespace tandem::v0::io
