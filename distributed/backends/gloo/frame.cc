#include <tandem/distributed/backends/gloo/frame.h>

#include <algorithm>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

namespace {

using wire::PayloadReader;
using wire::PayloadWriter;

void require(bool holds, const char* what) {
  if (!holds) throw IoError(str("gloo: received a frame ", what));
}

template <class Enum>
Enum read_enum(PayloadReader& reader, Enum last) {
  const int64_t value = reader.number();
  require(value >= 0 && value <= static_cast<int64_t>(last), "with an invalid enumerator");
  return static_cast<Enum>(value);
}

std::string read_text(PayloadReader& reader, size_t longest) {
  std::string text = reader.text();
  require(text.size() <= longest, "with a string that is too long");
  return text;
}

int64_t read_count(PayloadReader& reader, int64_t most) {
  const int64_t count = reader.number();
  require(count >= 0 && count <= most, "with a list that is too long");
  return count;
}

size_t num_sizes(const ShownShape& shape) { return std::min(static_cast<size_t>(shape.dims), kMaxShownDims); }

void write_shape(PayloadWriter& writer, const ShownShape& shape) {
  writer.number(shape.dims);
  for (size_t i = 0; i < num_sizes(shape); ++i) writer.number(shape.sizes[i]);
}

ShownShape read_shape(PayloadReader& reader) {
  ShownShape shape;
  shape.dims = reader.number();
  require(shape.dims >= 0, "with a negative count");
  for (size_t i = 0; i < num_sizes(shape); ++i) shape.sizes[i] = reader.number();
  return shape;
}

void write_parts(PayloadWriter& writer, const std::vector<PartFrame>& parts) {
  writer.number(static_cast<int64_t>(parts.size()));
  for (const PartFrame& part : parts) writer.number(part.num_elements).number(static_cast<int64_t>(part.shape_hash));
}

std::vector<PartFrame> read_parts(PayloadReader& reader, int world_size) {
  std::vector<PartFrame> parts(static_cast<size_t>(read_count(reader, world_size)));
  for (PartFrame& part : parts) {
    part.num_elements = reader.number();
    part.shape_hash = static_cast<uint64_t>(reader.number());
  }
  return parts;
}

std::string_view shown(const std::string& text) { return std::string_view(text).substr(0, kCallInfoText); }

}  // namespace

FrameHeader check_header(std::span<const std::byte> record, const Expected& expected) {
  FrameHeader header;
  require(record.size() >= sizeof(header), "that is truncated");
  std::memcpy(&header, record.data(), sizeof(header));
  require(header.magic == kMagic, "with a wrong magic number");
  require(header.seq == expected.seq, "out of order");
  require(header.type >= static_cast<uint16_t>(FrameType::kCredit) &&
              header.type <= static_cast<uint16_t>(FrameType::kGoodbye),
          "of an unknown type");
  require(header.length <= expected.max_payload && header.length <= record.size() - sizeof(header),
          "that is longer than a record");
  require(header.data_length <= expected.max_data, "that is longer than a slot");
  require((header.type == static_cast<uint16_t>(FrameType::kData)) == (header.data_length > 0),
          "whose data length does not match its type");
  require(header.arrived_records >= expected.last.arrived_records && header.arrived_records <= expected.sent_records,
          "that acknowledges bytes that were not sent");
  require(header.arrived_data >= expected.last.arrived_data && header.arrived_data <= expected.sent_data,
          "that acknowledges bytes that were not sent");
  require(header.released_data >= expected.last.released_data && header.released_data <= header.arrived_data,
          "that acknowledges bytes that were not sent");
  return header;
}

std::string encode(const SignatureFrame& frame) {
  const Signature& s = frame.signature;
  PayloadWriter writer;
  writer.number(static_cast<int64_t>(frame.number)).number(frame.seq);
  writer.number(static_cast<int64_t>(s.kind)).number(static_cast<int64_t>(s.op)).number(static_cast<int64_t>(s.dtype));
  writer.number(s.root).number(s.num_elements);
  writer.number(static_cast<int64_t>(s.name_hash)).number(static_cast<int64_t>(s.shape_hash));
  writer.number(s.on_gpu ? 1 : 0).number(s.in_list ? 1 : 0);
  write_shape(writer, frame.shape);
  writer.text(frame.tensors).text(shown(frame.name)).text(shown(frame.file)).number(frame.line);
  write_parts(writer, frame.sends);
  write_parts(writer, frame.expects);
  write_shape(writer, frame.sent);
  write_shape(writer, frame.expected);
  writer.text(frame.data);
  return writer.take();
}

SignatureFrame decode_signature(std::string_view payload, int world_size) {
  PayloadReader reader(payload);
  SignatureFrame frame;
  Signature& s = frame.signature;
  frame.number = static_cast<uint64_t>(reader.number());
  frame.seq = reader.number();
  s.kind = read_enum(reader, CollectiveKind::kBarrier);
  s.op = read_enum(reader, ReduceOp::kBitXor);
  s.dtype = read_enum(reader, kFloat64);
  const int64_t root = reader.number();
  require(root >= -1 && root < world_size, "with an invalid root rank");
  s.root = static_cast<int>(root);
  s.num_elements = reader.number();
  s.name_hash = static_cast<uint64_t>(reader.number());
  s.shape_hash = static_cast<uint64_t>(reader.number());
  const int64_t on_gpu = reader.number(), in_list = reader.number();
  require((on_gpu == 0 || on_gpu == 1) && (in_list == 0 || in_list == on_gpu), "with invalid device flags");
  s.on_gpu = on_gpu == 1;
  s.in_list = in_list == 1;
  frame.shape = read_shape(reader);
  frame.tensors = read_text(reader, kMaxShownTensors);
  frame.name = read_text(reader, kCallInfoText);
  frame.file = read_text(reader, kCallInfoText);
  frame.line = static_cast<uint32_t>(reader.number());
  frame.sends = read_parts(reader, world_size);
  frame.expects = read_parts(reader, world_size);
  frame.sent = read_shape(reader);
  frame.expected = read_shape(reader);
  frame.data = read_text(reader, kInlineBytes);
  reader.finish();
  return frame;
}

namespace {

void write_message(PayloadWriter& writer, const MessageFrame& frame) {
  writer.number(static_cast<int64_t>(frame.id)).number(frame.tag).number(static_cast<int64_t>(frame.dtype));
  writer.number(frame.num_elements);
  writer.number(static_cast<int64_t>(frame.name_hash)).number(static_cast<int64_t>(frame.shape_hash));
  writer.number(static_cast<int64_t>(frame.gpu));
  write_shape(writer, frame.shape);
  writer.text(shown(frame.name)).text(shown(frame.file)).number(frame.line).text(frame.data);
}

MessageFrame read_message(PayloadReader& reader) {
  MessageFrame frame;
  frame.id = static_cast<uint64_t>(reader.number());
  frame.tag = reader.number();
  frame.dtype = read_enum(reader, kFloat64);
  frame.num_elements = reader.number();
  require(frame.num_elements >= 0, "with a negative count");
  frame.name_hash = static_cast<uint64_t>(reader.number());
  frame.shape_hash = static_cast<uint64_t>(reader.number());
  frame.gpu = static_cast<uint64_t>(reader.number());
  frame.shape = read_shape(reader);
  frame.name = read_text(reader, kCallInfoText);
  frame.file = read_text(reader, kCallInfoText);
  frame.line = static_cast<uint32_t>(reader.number());
  frame.data = read_text(reader, kInlineBytes);
  return frame;
}

}  // namespace

std::string encode(const MessageFrame& frame) {
  PayloadWriter writer;
  write_message(writer, frame);
  return writer.take();
}

MessageFrame decode_message(std::string_view payload) {
  PayloadReader reader(payload);
  MessageFrame frame = read_message(reader);
  reader.finish();
  return frame;
}

std::string encode(const AnswerFrame& frame) {
  PayloadWriter writer;
  writer.number(static_cast<int64_t>(frame.id)).number(static_cast<int64_t>(frame.kind));
  if (frame.kind == AnswerFrame::Kind::kMismatch) write_message(writer, frame.posted);
  return writer.take();
}

AnswerFrame decode_answer(std::string_view payload) {
  PayloadReader reader(payload);
  AnswerFrame frame;
  frame.id = static_cast<uint64_t>(reader.number());
  frame.kind = read_enum(reader, AnswerFrame::Kind::kMismatch);
  if (frame.kind == AnswerFrame::Kind::kMismatch) frame.posted = read_message(reader);
  reader.finish();
  return frame;
}

std::string encode(const PoisonFrame& frame) {
  const std::string_view reason = std::string_view(frame.reason).substr(0, kMaxReason);
  return PayloadWriter().number(static_cast<int64_t>(frame.finished)).number(frame.culprit).text(reason).take();
}

PoisonFrame decode_poison(std::string_view payload) {
  PayloadReader reader(payload);
  PoisonFrame frame;
  frame.finished = static_cast<uint64_t>(reader.number());
  frame.culprit = reader.number();
  frame.reason = read_text(reader, kMaxReason);
  reader.finish();
  return frame;
}

}}}  // namespace tandem::v0::distributed::gloo
