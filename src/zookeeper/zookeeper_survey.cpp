#include "zookeeper/zookeeper_survey.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "net/stream.hpp"
#include "zookeeper/zookeeper_backend.hpp"

namespace dlock {
namespace {

constexpr std::string_view version_line = "Zookeeper version: ";
constexpr std::string_view mode_line = "Mode: ";
constexpr std::size_t longest_answer = 4096;

}  // namespace

ZooKeeperServerStatus ask_server(const Endpoint& endpoint, const CallOptions& call_options) {
  ZooKeeperServerStatus server{endpoint.address()};
  try {
    const Deadline begun = BootClock::now();
    Stream stream = Stream::connect(endpoint, call_options);
    stream.send("srvr", call_options);
    std::string answer;
    try {
      while (answer.size() < longest_answer) answer += stream.receive(call_options);
    } catch (const Error&) {
      // The server closes the connection after its answer.
      if (left_until(call_options.deadline) == milliseconds(0)) throw;
    }
    server.answered_in = BootClock::now() - begun;
    std::string_view rest = answer;
    while (!rest.empty()) {
      std::string_view line = take_until(rest, '\n');
      if (line.starts_with(version_line)) {
        line.remove_prefix(version_line.size());
        server.version = line.substr(0, line.find_first_of("-, "));
      } else if (line.starts_with(mode_line)) {
        server.mode = line.substr(mode_line.size());
      } else if (server.version.empty() && server.refusal.empty()) {
        server.refusal = line;
      }
    }
  } catch (const Error& error) {
    server.unreachable = {error.what(), error.cause()};
  }
  return server;
}

ZooKeeperStatus ask_zookeeper(const std::vector<Endpoint>& servers, const std::string& shown,
                              const std::string& chroot, const std::string& prefix,
                              milliseconds session, const CallOptions& call_options) {
  ZooKeeperStatus status;
  try {
    ZooKeeperBackend backend(servers, shown, chroot, prefix, session);
    backend.read(prefix + "k:", nullptr, call_options);
    status.session = backend.granted_session();
    const Deadline begun = BootClock::now();
    const Snapshot seen = backend.read(prefix + "k:", nullptr, call_options);
    status.round_trip = BootClock::now() - begun;
    status.ahead = seen.clock - wall_at(begun + status.round_trip / 2).time_since_epoch();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::host_refused) throw;
    status.trouble = error.what();
  }
  return status;
}

}  // namespace dlock
