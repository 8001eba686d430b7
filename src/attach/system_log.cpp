#include "attach/system_log.hpp"

#include <paths.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <ctime>

#include "base/fd.hpp"

namespace dlock {
namespace {

constexpr timeval logger_timeout{0, 200'000};

/// As glibc writes it: `<11>Nov  6 08:15:30 dlock[42]: TEXT`.
std::string syslog_record(const std::string& text) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  // The month in English whatever the locale is: dlock never sets one.
  const auto length = std::strftime(stamp, sizeof stamp, "%b %e %H:%M:%S", &local);
  return "<" + std::to_string(LOG_USER | LOG_ERR) + ">" + std::string(stamp, length) + " dlock[" +
         std::to_string(getpid()) + "]: " + text;
}

}  // namespace

void write_system_log(const std::string& text) {
  const std::string record = syslog_record(text);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::string(_PATH_LOG).copy(name.sun_path, sizeof name.sun_path - 1);
  // Some loggers listen for streams, in which a NUL ends a record.
  for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
    const Fd log(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    setsockopt(log.get(), SOL_SOCKET, SO_SNDTIMEO, &logger_timeout, sizeof logger_timeout);
    if (connect(log.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) continue;
    send(log.get(), record.c_str(), record.size() + (type == SOCK_STREAM ? 1 : 0), MSG_NOSIGNAL);
    return;
  }
}

}  // namespace dlock
