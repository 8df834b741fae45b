#include <tandem/base/log.h>

#include <string_view>

#define FMT_CONSTEVAL  // clang 22 rejects what Debian's fmt does at compile time
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <tandem/base/env.h>
#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

namespace {

LogLevel level_from_environment() {
  const std::string text = env_string("TANDEM_LOG").value_or("warning");
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  for (int i = 0; i < 5; ++i) {
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  }
  throw ValueError("TANDEM_LOG: '" + text + "' is not one of off, error, warning, info, debug");
}

spdlog::logger& logger() {
  // Never destroyed, because threads may log while the process ends.
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("tandem", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const LogLevel lowest = level_from_environment();
  return level >= lowest && level != LogLevel::kOff &&
         (level >= LogLevel::kWarning || RankContext::current().rank == 0);
}

void log_line(LogLevel level, const std::string& text) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  const RankContext& context = RankContext::current();
  const std::string rank =
      context.world_size > 1 ? str("[rank ", context.rank, "/", context.world_size, "] ") : std::string();
  logger().log(kLevels[static_cast<int>(level)], "{}{}", rank, text);
}

}}  // namespace tandem::v0
