#include <tandem/distributed/backends/network/frame.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <type_traits>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

using wire::PayloadReader;
using wire::PayloadWriter;

void require(bool holds, const char* what) {
  if (!holds) throw IoError(str("gloo: received a frame ", what));
}

/// Writes the fields of a frame. Writer and Reader have the same functions, so each frame lists its fields only once.
class Writer {
 public:
  template <class T>
  Writer& number(T value, int64_t = 0, int64_t = 0, const char* = nullptr) {
    payload_.number(static_cast<int64_t>(value));
    return *this;
  }
  Writer& text(std::string_view text, size_t) {
    payload_.text(text);
    return *this;
  }
  /// Only the first `longest` bytes are sent.
  Writer& beginning(std::string_view text, size_t longest) { return this->text(text.substr(0, longest), longest); }
  static int world_size() { return 0; }
  std::string take() { return payload_.take(); }

 private:
  PayloadWriter payload_;
};

/// Reads the fields of a frame. Throws IoError for a value that is out of range.
class Reader {
 public:
  Reader(std::string_view payload, int world_size) : world_size_(world_size), payload_(payload) {}

  template <class T>
  Reader& number(T& value, int64_t least = INT64_MIN, int64_t most = INT64_MAX, const char* error = nullptr) {
    const int64_t number = payload_.number();
    require(number >= least && number <= most, error);
    value = static_cast<T>(number);
    return *this;
  }
  Reader& text(std::string& text, size_t longest) {
    text = payload_.text();
    require(text.size() <= longest, "with a string that is too long");
    return *this;
  }
  Reader& beginning(std::string& text, size_t longest) { return this->text(text, longest); }
  int world_size() const { return world_size_; }
  void finish() const { payload_.finish(); }

 private:
  const int world_size_;
  PayloadReader payload_;
};

template <class T, class Frame>
concept SameAs = std::is_same_v<std::remove_const_t<T>, Frame>;

constexpr const char* kNoEnumerator = "with an invalid enumerator";
constexpr const char* kNegative = "with a negative count";

template <class Io, class Frame>
void list_shape(Io& io, Frame& shape) {
  io.number(shape.dims, 0, INT64_MAX, kNegative);
  const size_t num_sizes = std::min(static_cast<size_t>(shape.dims), kMaxShownDims);
  for (size_t i = 0; i < num_sizes; ++i) io.number(shape.sizes[i]);
}

template <class Io, class Parts>
void list_parts(Io& io, Parts& parts) {
  size_t count = parts.size();
  io.number(count, 0, io.world_size(), "with a list that is too long");
  if constexpr (!std::is_const_v<Parts>) parts.resize(count);
  for (auto& part : parts) io.number(part.num_elements).number(part.shape_hash);
}

template <class Io, class Frame>
void list_place(Io& io, Frame& frame) {
  io.beginning(frame.name, kCallInfoText).beginning(frame.file, kCallInfoText).number(frame.line);
}

template <class Io, SameAs<SignatureFrame> Frame>
void list(Io& io, Frame& frame) {
  auto& s = frame.signature;
  io.number(frame.number).number(frame.seq);
  io.number(s.kind, 0, static_cast<int64_t>(CollectiveKind::kBarrier), kNoEnumerator);
  io.number(s.op, 0, static_cast<int64_t>(ReduceOp::kBitXor), kNoEnumerator);
  io.number(s.dtype, 0, static_cast<int64_t>(kFloat64), kNoEnumerator);
  io.number(s.root, -1, io.world_size() - 1, "with an invalid root rank");
  io.number(s.num_elements).number(s.name_hash).number(s.shape_hash);
  io.number(s.on_gpu, 0, 1, "with invalid device flags").number(s.in_list, 0, s.on_gpu, "with invalid device flags");
  list_shape(io, frame.shape);
  io.text(frame.tensors, kMaxShownTensors);
  list_place(io, frame);
  list_parts(io, frame.sends);
  list_parts(io, frame.expects);
  list_shape(io, frame.sent);
  list_shape(io, frame.expected);
  io.text(frame.data, kInlineBytes);
}

template <class Io, SameAs<MessageFrame> Frame>
void list(Io& io, Frame& frame) {
  io.number(frame.id).number(frame.tag, INT_MIN, INT_MAX, "with an invalid tag");
  io.number(frame.dtype, 0, static_cast<int64_t>(kFloat64), kNoEnumerator);
  io.number(frame.num_elements, 0, INT64_MAX, kNegative);
  io.number(frame.name_hash).number(frame.shape_hash).number(frame.gpu);
  list_shape(io, frame.shape);
  list_place(io, frame);
  io.text(frame.data, kInlineBytes);
}

template <class Io, SameAs<AnswerFrame> Frame>
void list(Io& io, Frame& frame) {
  io.number(frame.id);
  io.number(frame.kind, 0, static_cast<int64_t>(AnswerFrame::Kind::kMismatch), kNoEnumerator);
  if (frame.kind == AnswerFrame::Kind::kMismatch) list(io, frame.posted);
}

template <class Frame>
std::string written(const Frame& frame) {
  Writer writer;
  list(writer, frame);
  return writer.take();
}

template <class Frame>
Frame read(std::string_view payload, int world_size = 0) {
  Reader reader(payload, world_size);
  Frame frame;
  list(reader, frame);
  reader.finish();
  return frame;
}

}  // namespace

FrameHeader check_header(std::span<const std::byte> bytes, const Expected& expected) {
  FrameHeader header;
  require(bytes.size() >= sizeof(header), "that is truncated");
  std::memcpy(&header, bytes.data(), sizeof(header));
  require(header.magic == kMagic, "with a wrong magic number");
  require(header.seq == expected.seq, "out of order");
  require(header.type >= static_cast<uint16_t>(FrameType::kSignature) &&
              header.type <= static_cast<uint16_t>(FrameType::kGoodbye),
          "of an unknown type");
  require(header.length <= expected.max_payload, "whose payload is too long");
  require(header.data_length <= expected.max_data, "whose data is too long");
  const bool is_data = header.type == static_cast<uint16_t>(FrameType::kData);
  require(is_data == (header.data_length > 0) && (!is_data || header.length == 0),
          "whose data length does not match its type");
  return header;
}

std::string encode(const SignatureFrame& frame) { return written(frame); }
std::string encode(const MessageFrame& frame) { return written(frame); }
std::string encode(const AnswerFrame& frame) { return written(frame); }

SignatureFrame decode_signature(std::string_view payload, int world_size) {
  return read<SignatureFrame>(payload, world_size);
}
MessageFrame decode_message(std::string_view payload) { return read<MessageFrame>(payload); }
AnswerFrame decode_answer(std::string_view payload) { return read<AnswerFrame>(payload); }

}}}  // namespace tandem::v0::distributed::network
