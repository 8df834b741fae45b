#include <tandem/distributed/launch/node_messages.h>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

int read_int(wire::PayloadReader& reader) { return static_cast<int>(reader.number()); }

template <typename Kind>
Kind read_kind(wire::PayloadReader& reader, Kind last) {
  const int64_t number = reader.number();
  TANDEM_CHECK(IoError, number >= 0 && number <= static_cast<int64_t>(last),
               "launch: received a message of unknown kind ", number);
  return static_cast<Kind>(number);
}

}  // namespace

std::string encode(const NodeEvent& event) {
  return wire::PayloadWriter()
      .number(static_cast<int>(event.kind))
      .number(event.node)
      .number(event.num_nodes)
      .number(event.num_ranks)
      .number(event.gdb_rank)
      .number(event.signal)
      .text(event.text)
      .number(event.exit.rank)
      .number(event.exit.wait_status)
      .text(event.exit.log_path)
      .text(event.exit.log_tail)
      .text(event.exit.records)
      .take();
}

NodeEvent decode_event(const std::string& text) {
  wire::PayloadReader reader(text);
  NodeEvent event;
  event.kind = read_kind(reader, NodeEvent::Kind::kKilled);
  event.node = read_int(reader);
  event.num_nodes = read_int(reader);
  event.num_ranks = read_int(reader);
  event.gdb_rank = read_int(reader);
  event.signal = read_int(reader);
  event.text = reader.text();
  event.exit.rank = read_int(reader);
  event.exit.wait_status = read_int(reader);
  event.exit.log_path = reader.text();
  event.exit.log_tail = reader.text();
  event.exit.records = reader.text();
  reader.finish();
  return event;
}

std::string encode(const NodeCommand& command) {
  wire::PayloadWriter writer;
  writer.number(static_cast<int>(command.kind))
      .number(command.assignment.world_size)
      .number(command.assignment.num_nodes)
      .text(command.assignment.store_host)
      .number(command.assignment.store_port)
      .text(command.assignment.token)
      .text(command.assignment.run_id)
      .number(command.assignment.restart)
      .number(command.assignment.max_restarts)
      .number(command.no_deadlines ? 1 : 0)
      .number(command.signal)
      .number(command.status)
      .text(command.text)
      .number(static_cast<int64_t>(command.ranks.size()));
  for (const int rank : command.ranks) writer.number(rank);
  return writer.take();
}

NodeCommand decode_command(const std::string& text) {
  wire::PayloadReader reader(text);
  NodeCommand command;
  command.kind = read_kind(reader, NodeCommand::Kind::kFinish);
  command.assignment.world_size = read_int(reader);
  command.assignment.num_nodes = read_int(reader);
  command.assignment.store_host = reader.text();
  command.assignment.store_port = read_int(reader);
  command.assignment.token = reader.text();
  command.assignment.run_id = reader.text();
  command.assignment.restart = read_int(reader);
  command.assignment.max_restarts = read_int(reader);
  command.no_deadlines = reader.number() != 0;
  command.signal = read_int(reader);
  command.status = read_int(reader);
  command.text = reader.text();
  for (int64_t n = reader.number(); n > 0; --n) command.ranks.push_back(read_int(reader));
  reader.finish();
  return command;
}

}}}  // namespace tandem::v0::distributed
