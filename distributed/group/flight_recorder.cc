#include <tandem/distributed/group/flight_recorder.h>

#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/file.h>
#include <tandem/base/format.h>
#include <tandem/base/log.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Time = FlightRecorder::Time;

struct Recorders {
  std::mutex mutex;
  std::vector<FlightRecorder*> all;
  bool handles_quit = false;

  /// Never destroyed: the thread that handles SIGQUIT may run at the end of the process.
  static Recorders& get() {
    static auto* const instance = new Recorders;
    return *instance;
  }
};

sem_t quit_signals;

extern "C" void handle_quit(int) {
  const int error = errno;  // restored for the interrupted code
  sem_post(&quit_signals);
  errno = error;
}

void handle_quit_signals(Recorders& recorders) {
  struct sigaction action = {};
  if (recorders.handles_quit || !env_string("TANDEM_STORE") || sigaction(SIGQUIT, nullptr, &action) != 0) return;
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) return;
  recorders.handles_quit = true;
  sem_init(&quit_signals, 0, 0);
  start_thread([] {
    for (;;) {
      if (sem_wait(&quit_signals) == 0) FlightRecorder::write_all("SIGQUIT", false);
    }
  }).detach();
  action.sa_handler = handle_quit;
  action.sa_flags = SA_RESTART;
  sigaction(SIGQUIT, &action, nullptr);
}

/// The file of the group, whose name may contain any characters; empty if no folder is given.
std::string path_of(const ProcessGroupOptions& options) {
  const auto folder = env_string("TANDEM_FLIGHT_RECORDER_DIR");
  if (!folder) return "";
  std::string name = options.name.substr(0, 100);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  for (char& c : name) c = is_plain(c) ? c : '_';
  const int64_t restart = parse_integer(env_string("TORCHELASTIC_RESTART_COUNT").value_or("")).value_or(0);
  return str(*folder, "/", flight_record_prefix(job_rank(options, options.rank), static_cast<int>(restart)), name,
             ".txt");
}

template <size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
  if (text.size() > size) std::memcpy(to + size - 3, "...", 3);
}

/// `text` in one line, with single spaces.
std::string flat(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool is_space = static_cast<unsigned char>(c) <= ' ';
    if (!is_space || !line.ends_with(' ')) line += is_space ? ' ' : c;
  }
  return line;
}

/// "2026-11-30 04:52:27.123456" (UTC).
std::string date(int64_t nanoseconds) {
  const time_t seconds = nanoseconds / 1'000'000'000;
  tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[80];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02d %02d:%02d:%02d.%06d", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(nanoseconds % 1'000'000'000 / 1000));
  return text;
}

int64_t wall_clock_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Equal on all ranks whose collectives match: 8 hexadecimal digits.
std::string digest(const Signature& s) {
  const std::string fields = str(to_string(s.kind), " ", to_string(s.op), " ", s.dtype, " ", s.root, " ",
                                 s.num_elements, " ", s.name_hash, " ", s.shape_hash, " ", s.on_gpu, " ", s.in_list);
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(hash_name(fields)));
  return text;
}

}  // namespace

std::string flight_record_prefix(int rank, int restart) {
  return restart == 0 ? str("rank-", rank, ".flight-") : str("rank-", rank, ".restart-", restart, ".flight-");
}

/// Has no memory of its own, so that recording allocates nothing.
struct FlightRecorder::Entry {
  std::atomic<int64_t> times[3];  ///< by Time; until they are set, minus the number of the record
  int64_t queued = 0;             ///< 0: when it was started
  int64_t number = 0;
  bool is_message = false, sends = false;
  int peer = 0;
  MessageSignature message;
  Signature signature;
  ShownShape shape;
  char tensors[96], name[64];
  std::source_location where;

  std::string call() const {
    if (!is_message) return describe_call(signature, shape, tensors, name, where.file_name(), where.line());
    return describe_call(message, sends, peer, shape, name, where.file_name(), where.line());
  }
};

FlightRecorder::FlightRecorder(const ProcessGroupOptions& options, std::mutex& mutex)
    : title_(str("group '", flat(options.name), "', rank ", job_rank(options, options.rank), " (", options.rank, " of ",
                 options.world_size, " in the group)")),
      path_(path_of(options)),
      mutex_(mutex),
      entries_(path_.empty() ? nullptr : new Entry[kNumEntries]) {
  if (entries_ == nullptr) return;
  Recorders& recorders = Recorders::get();
  std::lock_guard lock(recorders.mutex);
  recorders.all.push_back(this);
  try {
    handle_quit_signals(recorders);
  } catch (const ResourceError&) {  // no thread: SIGQUIT keeps its action
  }
}

FlightRecorder::~FlightRecorder() {
  Recorders& recorders = Recorders::get();
  std::lock_guard lock(recorders.mutex);
  std::erase(recorders.all, this);
}

void FlightRecorder::add(Operation& operation, bool starts_now) {
  operation.record = ++num_recorded_;
  Entry& entry = entries_[(num_recorded_ - 1) % kNumEntries];
  for (auto& time : entry.times) time.store(-num_recorded_, std::memory_order_relaxed);
  copy_text(entry.name, operation.name());
  entry.is_message = operation.number() < 0;
  entry.queued = starts_now && !entry.is_message ? 0 : trace_now_ns();
  if (entry.is_message) {
    const auto& message = static_cast<const Message&>(operation);
    entry.number = message.transfer.seq;
    entry.sends = message.transfer.sends;
    entry.peer = message.shown_peer;
    entry.message = message.transfer;
    entry.shape = message.transfer.shape;
    entry.where = message.transfer.where;
  } else {
    const Collective& collective = static_cast<const CollectiveOperation&>(operation).collective;
    entry.number = collective.seq;
    entry.signature = collective;
    entry.shape = collective.shape;
    copy_text(entry.tensors, collective.tensors);
    entry.where = collective.where;
  }
}

/// Ignores an operation whose entry was given to a later one. If that happens between the load and the store, one time
/// in the file is wrong: atomic exchanges would make recording slower by a third.
void FlightRecorder::mark(Entry* entries, int64_t record, Time which, int64_t now) {
  if (record == 0) return;
  std::atomic<int64_t>& time = entries[(record - 1) % kNumEntries].times[static_cast<size_t>(which)];
  if (time.load(std::memory_order_relaxed) == -record) time.store(now, std::memory_order_relaxed);
}

void FlightRecorder::mark(const Operation& operation, Time time, int64_t now) {
  mark(entries_.get(), operation.record, time, now);
}

void FlightRecorder::mark_end(const Operation& operation) {
  if (operation.record == 0 || operation.error) return;
  mark(operation, operation.ends_on_gpu ? Time::kAgreed : Time::kDone, trace_now_ns());
}

std::function<void()> FlightRecorder::end_on_gpu(const Operation& check) {
  if (check.record == 0) return {};
  return [entries = entries_, record = check.record] { mark(entries.get(), record, Time::kDone, trace_now_ns()); };
}

std::string FlightRecorder::table(const std::string& why) {
  std::lock_guard lock(mutex_);
  const int64_t to_wall = wall_clock_ns() - trace_now_ns();
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof(host) - 1);
  std::string text =
      str("# flight recorder: the last ", kNumEntries, " operations of a group on one rank, oldest first\n", "# ",
          title_, ", host ", host, ", process ", getpid(), "\n# written ", date(wall_clock_ns()), " UTC: ", flat(why),
          "\n# queued: UTC; started, agreed, done: milliseconds later, '-' if not yet; check: equal on ranks "
          "whose calls match\n# number  queued              started     agreed       done     check  call\n");
  for (int64_t i = std::max<int64_t>(0, num_recorded_ - kNumEntries); i < num_recorded_; ++i) {
    const Entry& entry = entries_[i % kNumEntries];
    const int64_t queued = entry.queued != 0 ? entry.queued : entry.times[0].load(std::memory_order_relaxed);
    const std::string clock = queued > 0 ? date(queued + to_wall).substr(std::strlen("2026-11-30 ")) : "-";
    const auto after = [&](Time which) {
      const int64_t time = entry.times[static_cast<size_t>(which)].load(std::memory_order_relaxed);
      return time < 0 ? "-" : format_fixed(static_cast<double>(time - queued) / 1e6, 3);
    };
    char line[160];
    std::snprintf(line, sizeof(line), "%8s  %15s %10s %10s %10s  %8s  ",
                  str(entry.is_message ? "p" : "", entry.number).c_str(), clock.c_str(), after(Time::kStarted).c_str(),
                  after(Time::kAgreed).c_str(), after(Time::kDone).c_str(),
                  entry.is_message ? "-" : digest(entry.signature).c_str());
    text += str(line, flat(entry.call()), "\n");
  }
  return text;
}

void FlightRecorder::write(const std::string& why, bool is_failure) {
  if (entries_ == nullptr) return;
  std::lock_guard lock(file_mutex_);
  if (is_final_) return;
  is_final_ = is_failure;
  const std::string folder = path_.substr(0, path_.rfind('/'));
  try {
    const std::error_code error = create_folder(folder);
    TANDEM_CHECK(IoError, !error, "flight recorder: cannot create '", folder, "': ", error.message());
    write_file("flight recorder", path_, table(why));
  } catch (const std::exception& e) {
    log(LogLevel::kWarning, error_text(e));
  }
}

void FlightRecorder::write_all(const std::string& why, bool is_failure) {
  std::lock_guard lock(Recorders::get().mutex);
  for (FlightRecorder* const recorder : Recorders::get().all) {
    recorder->write(why, is_failure);
    if (!is_failure) log(LogLevel::kWarning, why, ": wrote ", recorder->path_);
  }
}

}}}  // namespace tandem::v0::distributed
