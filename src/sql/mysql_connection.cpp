#include "sql/mysql_connection.hpp"

#include <errmsg.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"
#include "net/resolve.hpp"
#include "sql/mysql_error.hpp"

namespace dlock {
namespace {

LibMariaDb load_libmariadb() {
  const SharedLibrary library(
      "libmariadb.so.3",
      "locks in MySQL or MariaDB need libmariadb, on Debian the package libmariadb3");
  LibMariaDb loaded{};
#define DLOCK_LIBMARIADB_LOAD(name) library.find(#name, loaded.name);
  DLOCK_LIBMARIADB_FUNCTIONS(DLOCK_LIBMARIADB_LOAD)
#undef DLOCK_LIBMARIADB_LOAD
  // The library ignores SIGPIPE for the whole process, and dlock's command would inherit that.
  struct sigaction before {};
  sigaction(SIGPIPE, nullptr, &before);
  loaded.mysql_server_init(0, nullptr, nullptr);
  sigaction(SIGPIPE, &before, nullptr);
  return loaded;
}

}  // namespace

const LibMariaDb& libmariadb() {
  static const LibMariaDb functions = load_libmariadb();
  return functions;
}

namespace {

/// Shuts a socket down at the deadline or when the call is cancelled: the library waits for the end
/// of a TLS handshake by itself, for as long as the server likes.
class HandshakeLimit {
 public:
  HandshakeLimit(int fd, const CallOptions& call_options)
      : socket_(dup(fd)), thread_(start_thread([this, call_options] {
          pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}, {over_.fd(), POLLIN, 0}};
          const int ready = poll_until(fds, call_options.deadline);
          if (ready == 0 || fds[0].revents != 0) shutdown(socket_.get(), SHUT_RDWR);
        })) {}
  ~HandshakeLimit() {
    over_.raise();
    thread_.join();
  }
  HandshakeLimit(const HandshakeLimit&) = delete;
  HandshakeLimit& operator=(const HandshakeLimit&) = delete;

 private:
  Event over_;
  Fd socket_;  ///< open for as long as the thread may shut it down
  std::thread thread_;
};

/// Comes before the first statements of a connection, after the server's init_connect: each
/// statement commits, does not wait for locks long after its client has given up, and means the
/// same whatever the server has set.
std::string session_settings() {
  return "SET autocommit = 1, innodb_lock_wait_timeout = " +
         std::to_string(longest_row_wait.count()) +
         ", lock_wait_timeout = 5, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'; ";
}

short poll_events(int status) {
  short events = 0;
  if ((status & MYSQL_WAIT_READ) != 0) events |= POLLIN;
  if ((status & MYSQL_WAIT_WRITE) != 0) events |= POLLOUT;
  if ((status & MYSQL_WAIT_EXCEPT) != 0) events |= POLLPRI;
  return events;
}

int library_events(short came) {
  int status = 0;
  if ((came & (POLLIN | POLLERR | POLLHUP)) != 0) status |= MYSQL_WAIT_READ;
  if ((came & (POLLOUT | POLLERR | POLLHUP)) != 0) status |= MYSQL_WAIT_WRITE;
  if ((came & POLLPRI) != 0) status |= MYSQL_WAIT_EXCEPT;
  return status;
}

}  // namespace

void MysqlConnection::close() {
  if (mysql_ == nullptr) return;
  const PipeSignalHeld held;
  libmariadb().mysql_close(mysql_);
  mysql_ = nullptr;
}

/// In the middle of a call: the library's goodbye must not wait for a server that is silent.
void MysqlConnection::abandon() {
  const int fd = answered_fd();
  if (fd >= 0) shutdown(fd, SHUT_RDWR);
  close();
}

void MysqlConnection::broke() {
  const std::string message = libmariadb().mysql_error(mysql_);
  abandon();
  throw_unavailable(shown_ + ": the connection broke: " + escaped(message));
}

void MysqlConnection::check_in_time(const CallOptions& call_options) {
  if (readable(call_options.cancel_fd)) {
    abandon();
    throw_interrupted();
  }
  if (BootClock::now() < call_options.deadline) return;
  abandon();
  throw_unavailable(shown_ + ": no answer in time");
}

int MysqlConnection::wait(int status, const CallOptions& call_options) {
  pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}, {answered_fd(), poll_events(status), 0}};
  Deadline until = call_options.deadline;
  if ((status & MYSQL_WAIT_TIMEOUT) != 0) {
    const milliseconds of_library(libmariadb().mysql_get_timeout_value_ms(mysql_));
    until = std::min(until, later(BootClock::now(), of_library));
  }
  poll_until(fds, until);
  if (fds[0].revents != 0) {
    abandon();
    throw_interrupted();
  }
  // A server that sends without end has no more time than one that sends nothing.
  const bool in_time = BootClock::now() < call_options.deadline;
  if (fds[1].revents != 0 && in_time) return library_events(fds[1].revents);
  if (until < call_options.deadline && in_time) return MYSQL_WAIT_TIMEOUT;
  abandon();
  throw_unavailable(shown_ + ": no answer in time");
}

void MysqlConnection::carry_out(const Begin& begin, const Continue& go_on,
                                const CallOptions& call_options) {
  int status = 0;
  {
    const PipeSignalHeld held;
    status = begin();
  }
  while (status != 0) {
    const int events = wait(status, call_options);
    const PipeSignalHeld held;
    status = go_on(events);
  }
}

void MysqlConnection::set_options() {
  const auto set = [this](mysql_option option, const void* value) {
    libmariadb().mysql_options(mysql_, option, value);
  };
  const auto set_file = [&](mysql_option option, const std::string& path) {
    if (!path.empty()) set(option, path.c_str());
  };
  constexpr my_bool yes = 1;
  constexpr my_bool no = 0;
  constexpr unsigned off = 0;
  // A packet has one row, and a row one record; the library would accept a gigabyte.
  constexpr unsigned long largest_packet = 4UL << 20;
  set(MYSQL_OPT_NONBLOCK, nullptr);
  set(MYSQL_OPT_MAX_ALLOWED_PACKET, &largest_packet);
  // A server must not ask for files of this host.
  set(MYSQL_OPT_LOCAL_INFILE, &off);
  set(MYSQL_SET_CHARSET_NAME, "utf8mb4");
  set(MYSQL_READ_DEFAULT_GROUP, "client");
  libmariadb().mysql_options4(mysql_, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "dlock");
  set_file(MYSQL_OPT_SSL_CA, address_.ca);
  set_file(MYSQL_OPT_SSL_CERT, address_.certificate);
  set_file(MYSQL_OPT_SSL_KEY, address_.key);
  const bool encrypted = address_.tls == MysqlAddress::Tls::encrypted;
  const bool verified = address_.tls == MysqlAddress::Tls::verified;
  if (address_.tls != MysqlAddress::Tls::library) {
    set(MYSQL_OPT_SSL_ENFORCE, encrypted || verified ? &yes : &no);
    set(MYSQL_OPT_SSL_VERIFY_SERVER_CERT, verified ? &yes : &no);
  }
}

std::vector<std::string> MysqlConnection::hosts(const CallOptions& call_options) const {
  // `localhost` without a port means the socket, as everywhere with this library.
  const bool by_socket = address_.host.empty() || (address_.host == "localhost" && !address_.port);
  if (by_socket) return {address_.host};
  std::vector<std::string> found;
  try {
    found = resolve_in_digits(address_.host, call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    throw error.reworded(shown_ + ": " + error.what());
  }
  // The library compares the name in the certificate with the host's: it looks that up once more.
  if (address_.tls == MysqlAddress::Tls::verified) return {address_.host};
  return found;
}

/// Refuses a Unix socket on which no server listens: libmariadb closes its own twice then, and the
/// second time hits a file that another thread has opened meanwhile. A socket of another kind is
/// told whether there is a server without the server's knowing.
void MysqlConnection::refuse_dead_socket() const {
  sockaddr_un address{};
  const std::string& path = address_.socket_path;
  if (path.empty() || path.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  const Fd probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) throw_errno("socket");
  const bool of_this_kind =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!of_this_kind && errno == EPROTOTYPE) return;
  throw_unavailable(shown_ + ": cannot connect to the socket " + escaped(path) + ": " +
                    std::strerror(of_this_kind ? EPROTOTYPE : errno));
}

bool MysqlConnection::log_in(const std::string& host, const CallOptions& call_options) {
  refuse_dead_socket();
  mysql_ = libmariadb().mysql_init(nullptr);
  if (mysql_ == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
  set_options();
  const auto text = [](const std::string& value) {
    return value.empty() ? nullptr : value.c_str();
  };
  // An option file cannot take a flag back.
  const bool verified = address_.tls == MysqlAddress::Tls::verified;
  const unsigned long flags =
      CLIENT_MULTI_STATEMENTS | (verified ? CLIENT_SSL_VERIFY_SERVER_CERT : 0UL);
  const std::string password = address_.password ? address_.password->text(call_options) : "";
  MYSQL* connected = nullptr;
  carry_out(
      [&] {
        return libmariadb().mysql_real_connect_start(
            &connected, mysql_, text(host), address_.user ? address_.user->c_str() : nullptr,
            address_.password ? password.c_str() : nullptr, address_.database.c_str(),
            static_cast<unsigned>(address_.port), text(address_.socket_path), flags);
      },
      [&](int events) {
        const HandshakeLimit limit(answered_fd(), call_options);
        return libmariadb().mysql_real_connect_cont(&connected, mysql_, events);
      },
      call_options);
  if (connected == nullptr) check_in_time(call_options);
  return connected != nullptr;
}

void MysqlConnection::connect(const CallOptions& call_options) {
  // A server that has something to say to a connection at rest says goodbye.
  if (is_open() && at_rest_ && !readable(answered_fd())) {
    return;
  }
  close();
  at_rest_ = false;
  unsigned error = 0;
  std::string message;
  const auto all = hosts(call_options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t left = all.size() - i;
    try {
      if (log_in(all[i], share_of(call_options, left))) break;
    } catch (const Error& trouble) {
      if (mysql_ != nullptr) abandon();
      if (trouble.kind() != ErrorKind::unavailable || left == 1) throw;
      continue;
    }
    error = libmariadb().mysql_errno(mysql_);
    message = libmariadb().mysql_error(mysql_);
    abandon();
    if (!was_not_reached(error, message)) break;
  }
  if (!is_open()) {
    throw connect_error(error, message, address_, shown_).after_good_files(count_ > 0);
  }
  refuse_plain_text();
  const int fd = answered_fd();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Under TLS the library would read until something comes.
  fcntl(fd, F_SETFL, O_NONBLOCK);
  // An option file may have asked for it: another session would take the place of this one, unseen.
  constexpr my_bool no = 0;
  libmariadb().mysql_options(mysql_, MYSQL_OPT_RECONNECT, &no);
  login_id_ = libmariadb().mysql_thread_id(mysql_);
  is_set_up_ = false;
  ++count_;
  at_rest_ = true;
}

void MysqlConnection::refuse_plain_text() {
  const char* cipher = nullptr;
  libmariadb().mariadb_get_infov(mysql_, MARIADB_CONNECTION_SSL_CIPHER, &cipher);
  const bool wanted =
      address_.tls == MysqlAddress::Tls::encrypted || address_.tls == MysqlAddress::Tls::verified;
  if (!wanted || cipher != nullptr) return;
  close();
  throw_unavailable(shown_ + ": the server speaks no TLS");
}

MysqlResult MysqlConnection::take_result(bool failed, const CallOptions& call_options) {
  MysqlResult result;
  if (failed) {
    result.error = libmariadb().mysql_errno(mysql_);
    result.message = libmariadb().mysql_error(mysql_);
    if (is_of_library(result.error)) broke();
    return result;
  }
  MYSQL_RES* raw = nullptr;
  carry_out([&] { return libmariadb().mysql_store_result_start(&raw, mysql_); },
            [&](int events) { return libmariadb().mysql_store_result_cont(&raw, mysql_, events); },
            call_options);
  const MysqlResultPtr stored(raw);
  if (stored == nullptr) {
    if (libmariadb().mysql_errno(mysql_) != 0) return take_result(true, call_options);
    result.affected = static_cast<std::int64_t>(libmariadb().mysql_affected_rows(mysql_));
    return result;
  }
  const unsigned columns = libmariadb().mysql_num_fields(stored.get());
  while (const MYSQL_ROW row = libmariadb().mysql_fetch_row(stored.get())) {
    const unsigned long* lengths = libmariadb().mysql_fetch_lengths(stored.get());
    auto& values = result.rows.emplace_back().columns;
    values.resize(columns);
    for (unsigned i = 0; i < columns; ++i) {
      if (row[i] != nullptr) values[i].emplace(row[i], lengths[i]);
    }
  }
  return result;
}

std::vector<MysqlResult> MysqlConnection::query(const std::string& statements,
                                                const CallOptions& call_options) {
  connect(call_options);
  if (is_set_up_) {
    send_here(statements, call_options);
    return receive(call_options);
  }
  send_here(session_settings() + statements, call_options);
  auto results = receive(call_options);
  is_set_up_ = results.size() > 1;
  if (is_set_up_) results.erase(results.begin());
  return results;
}

void MysqlConnection::send(const std::string& statement, const CallOptions& call_options) {
  connect(call_options);
  send_here(statement, call_options);
}

void MysqlConnection::send_here(const std::string& text, const CallOptions& call_options) {
  at_rest_ = false;
  const auto& lib = libmariadb();
  int failed = 0;
  carry_out([&] { return lib.mysql_send_query_start(&failed, mysql_, text.c_str(), text.size()); },
            [&](int events) { return lib.mysql_send_query_cont(&failed, mysql_, events); },
            call_options);
  if (failed != 0) broke();
  if (call_options.sent != nullptr) call_options.sent->raise();
}

std::vector<MysqlResult> MysqlConnection::receive(const CallOptions& call_options) {
  const auto& lib = libmariadb();
  my_bool refused = 0;
  carry_out([&] { return lib.mysql_read_query_result_start(&refused, mysql_); },
            [&](int events) { return lib.mysql_read_query_result_cont(&refused, mysql_, events); },
            call_options);
  std::vector<MysqlResult> results;
  results.push_back(take_result(refused != 0, call_options));
  while (!results.back().failed()) {
    int next = 0;
    carry_out([&] { return lib.mysql_next_result_start(&next, mysql_); },
              [&](int events) { return lib.mysql_next_result_cont(&next, mysql_, events); },
              call_options);
    if (next < 0) break;
    results.push_back(take_result(next > 0, call_options));
  }
  at_rest_ = true;
  return results;
}

}  // namespace dlock
