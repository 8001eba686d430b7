#include "support/recorded_process.hpp"

#include "base/error.hpp"

namespace dlock::test {

std::string run_id_of(const RedisServer& server) {
  const std::string info = server.command({"INFO", "server"}).text, field = "run_id:";
  const auto at = info.find(field);
  if (at == std::string::npos) throw Error(ErrorKind::bug, "INFO without run_id");
  const auto begin = at + field.size();
  return info.substr(begin, info.find('\r', begin) - begin);
}

void record_process_of(const RedisServer& server, milliseconds age, bool durable) {
  const Reply time = server.command({"TIME"});
  const microseconds now = std::chrono::seconds(std::stoll(time.items.at(0).text)) +
                           microseconds(std::stoll(time.items.at(1).text));
  const std::string since = std::to_string((now - age).count());
  server.command({"SET", "dlock:alive", run_id_of(server) + " " + since + (durable ? " a" : " -")});
}

}  // namespace dlock::test
