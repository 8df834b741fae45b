#include <tandem/distributed/backends/network/frame.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

using wire::PayloadReader;
using wire::PayloadWriter;

void require(bool holds, const char* what) {
  if (!holds) throw IoError(str("gloo: received a frame ", what));
}

/// Writes the fields of a frame, or reads them: each frame lists its fields only once. Throws IoError if a value that
/// it reads is out of range.
class Fields {
 public:
  Fields() = default;
  Fields(std::string_view payload, int world_size) : reader_(payload), world_size_(world_size) {}

  template <class T>
  Fields& number(T& value, int64_t least = INT64_MIN, int64_t most = INT64_MAX, const char* error = nullptr) {
    if (!reader_) {
      writer_.number(static_cast<int64_t>(value));
      return *this;
    }
    const int64_t number = reader_->number();
    require(number >= least && number <= most, error);
    value = static_cast<T>(number);
    return *this;
  }
  /// Writes only the first `most_written` bytes.
  Fields& text(std::string& text, size_t longest, size_t most_written = std::string::npos) {
    if (!reader_) {
      writer_.text(std::string_view(text).substr(0, most_written));
      return *this;
    }
    text = reader_->text();
    require(text.size() <= longest, "with a string that is too long");
    return *this;
  }
  int world_size() const { return world_size_; }
  std::string take() { return writer_.take(); }
  void finish() const { reader_->finish(); }

 private:
  PayloadWriter writer_;
  std::optional<PayloadReader> reader_;  // empty: writes
  int world_size_ = 0;
};

constexpr const char* kNoEnumerator = "with an invalid enumerator";
constexpr const char* kNegative = "with a negative count";

void list_shape(Fields& io, ShownShape& shape) {
  io.number(shape.dims, 0, INT64_MAX, kNegative);
  const size_t num_sizes = std::min(static_cast<size_t>(shape.dims), kMaxShownDims);
  for (size_t i = 0; i < num_sizes; ++i) io.number(shape.sizes[i]);
}

void list_parts(Fields& io, std::vector<PartFrame>& parts) {
  size_t count = parts.size();
  io.number(count, 0, io.world_size(), "with a list that is too long");
  parts.resize(count);
  for (PartFrame& part : parts) io.number(part.num_elements).number(part.shape_hash);
}

template <class Frame>
void list_place(Fields& io, Frame& frame) {
  for (std::string* text : {&frame.name, &frame.file}) io.text(*text, kCallInfoText, kCallInfoText);
  io.number(frame.line);
}

void list(Fields& io, SignatureFrame& frame) {
  Signature& s = frame.signature;
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

void list(Fields& io, MessageFrame& frame) {
  io.number(frame.id).number(frame.tag, INT_MIN, INT_MAX, "with an invalid tag");
  io.number(frame.dtype, 0, static_cast<int64_t>(kFloat64), kNoEnumerator);
  io.number(frame.num_elements, 0, INT64_MAX, kNegative);
  io.number(frame.name_hash).number(frame.shape_hash).number(frame.gpu);
  list_shape(io, frame.shape);
  list_place(io, frame);
  io.text(frame.data, kInlineBytes);
}

void list(Fields& io, AnswerFrame& frame) {
  io.number(frame.id);
  io.number(frame.kind, 0, static_cast<int64_t>(AnswerFrame::Kind::kMismatch), kNoEnumerator);
  if (frame.kind == AnswerFrame::Kind::kMismatch) list(io, frame.posted);
}

template <class Frame>
std::string written(const Frame& frame) {
  Fields fields;
  list(fields, const_cast<Frame&>(frame));  // only reads it
  return fields.take();
}

template <class Frame>
Frame read(std::string_view payload, int world_size = 0) {
  Fields fields(payload, world_size);
  Frame frame;
  list(fields, frame);
  fields.finish();
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
