#include "support/memcached_server.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

constexpr const char* memcached_program = "/usr/bin/memcached";

}  // namespace

bool MemcachedServer::is_installed() { return access(memcached_program, X_OK) == 0; }

MemcachedServer::MemcachedServer(std::vector<std::string> flags) : flags_(std::move(flags)) {
  start();
}

Endpoint MemcachedServer::endpoint() const {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = port_.number();
  return endpoint;
}

void MemcachedServer::start() {
  std::vector<std::string> argv{
      memcached_program, "-l", "127.0.0.1", "-U", "0", "-p", std::to_string(port_.number())};
  // As root it wants to be told a user.
  if (geteuid() == 0) argv.insert(argv.end(), {"-u", "root"});
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  process_.emplace(argv, ProcessOptions{.merge = true});
  const auto answers = [&] {
    return without_error([&] { return !ask("version", "VERSION").empty(); });
  };
  if (!eventually(answers, time_to_come_up)) {
    throw Error(ErrorKind::host_refused, "memcached did not come up: " + process_->out());
  }
}

void MemcachedServer::kill_hard() {
  process_->kill_hard();
  process_.reset();
}

void MemcachedServer::cont() const { process_->signal(SIGCONT); }

std::string MemcachedServer::ask(const std::string& request, const std::string& last) {
  const Fd socket = connect_to({"", port_.number()});
  if (!socket || !send_all(socket.get(), request + "\r\n")) throw_unavailable("memcached is away");
  std::string answer;
  const auto is_whole = [&] {
    if (!answer.ends_with("\r\n")) return false;
    const auto line = answer.rfind('\n', answer.size() - 2);
    const std::string end = answer.substr(line == std::string::npos ? 0 : line + 1);
    return end.starts_with(last) || end.find("ERROR") != std::string::npos;
  };
  while (!is_whole()) {
    const std::string more = receive_some(socket.get());
    if (more.empty()) throw_unavailable("memcached answers only " + answer);
    answer += more;
  }
  return answer;
}

std::vector<std::string> MemcachedServer::keys() {
  constexpr std::string_view name = "key=";
  std::vector<std::string> names;
  const std::string dump = ask("lru_crawler metadump all", "END");
  for (std::string_view rest = dump; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    if (line.starts_with(name)) {
      names.push_back(percent_decoded(take_until(line, ' ').substr(name.size())));
    }
  }
  return names;
}

std::vector<std::string> MemcachedServer::records() {
  std::vector<std::string> names;
  for (const std::string& key : keys()) {
    const std::string answer = ask("get " + key, "END");
    std::string_view rest = answer;
    take_until(rest, '\n');
    std::string_view head = take_until(rest, '\n');
    // dlock-record 1 VERSION NAME
    for (int i = 0; i < 3; ++i) take_until(head, ' ');
    if (!head.empty()) names.push_back(percent_decoded(head));
  }
  return names;
}

}  // namespace dlock::test
