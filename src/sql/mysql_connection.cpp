#include "sql/mysql_connection.hpp"

#include <errmsg.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"
#include "net/resolve.hpp"
#include "sql/database.hpp"

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

/// Shuts a socket down at the deadline or when the call is cancelled: during a TLS handshake the
/// library itself waits for the server, without a limit.
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

/// These settings precede the first statements of a connection, after the server's init_connect.
/// With them each statement commits, does not wait for locks long after its client has given up,
/// and means the same on every server.
std::string session_settings() {
  return "SET autocommit = 1, innodb_lock_wait_timeout = " +
         std::to_string(longest_row_wait.count()) +
         ", lock_wait_timeout = 5, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'; ";
}

short poll_events(int status) {
  short events = 0;
  if ((status & MYSQL_WAIT_READ) != 0) events |= POLLIN;
  if ((status & MYSQL_WAIT_WRITE) != 0) events |= POLLOUT;
  return events;
}

int library_events(short came) {
  int status = 0;
  if ((came & (POLLIN | POLLERR | POLLHUP)) != 0) status |= MYSQL_WAIT_READ;
  if ((came & (POLLOUT | POLLERR | POLLHUP)) != 0) status |= MYSQL_WAIT_WRITE;
  return status;
}

/// Whether an error number comes from libmariadb and not from the server.
bool is_of_library(unsigned error) {
  constexpr unsigned of_mariadb = 5000;
  return (error >= CR_MIN_ERROR && error <= CR_MAX_ERROR) || error >= of_mariadb;
}

bool refuses_login(unsigned error) {
  constexpr unsigned locked_in_mysql = 3118;
  constexpr unsigned refusals[] = {
      ER_ACCESS_DENIED_ERROR,        ER_ACCESS_DENIED_NO_PASSWORD_ERROR,
      ER_DBACCESS_DENIED_ERROR,      ER_HOST_NOT_PRIVILEGED,
      ER_MUST_CHANGE_PASSWORD_LOGIN, ER_ACCOUNT_HAS_BEEN_LOCKED,
      CR_AUTH_PLUGIN_CANNOT_LOAD,    locked_in_mysql};
  return std::find(std::begin(refusals), std::end(refusals), error) != std::end(refusals);
}

bool is_full(unsigned error) {
  return error == ER_CON_COUNT_ERROR || error == ER_TOO_MANY_USER_CONNECTIONS ||
         error == ER_USER_LIMIT_REACHED;
}

/// Whether an error text about TLS concerns the connection, or a server problem: both are
/// temporary.
bool is_of_connection(const std::string& message) {
  constexpr std::string_view of_connection[] = {"eof",
                                                "onnection",
                                                "eset",
                                                "roken pipe",
                                                "imed out",
                                                "record",
                                                "wrong version",
                                                "internal error",
                                                "handshake failure",
                                                "protocol version",
                                                "unsupported protocol",
                                                "does not support"};
  return std::any_of(
      std::begin(of_connection), std::end(of_connection),
      [&](std::string_view what) { return message.find(what) != std::string::npos; });
}

/// OpenSSL has a hundred texts for a certificate that is not accepted, so all other texts count as
/// that.
ErrorKind kind_of_tls(const std::string& message) {
  const ErrorKind kind = tls_error_kind(message);
  const bool may_pass = kind == ErrorKind::unavailable && is_of_connection(message);
  return kind == ErrorKind::usage || may_pass ? kind : ErrorKind::denied;
}

/// The library does not name a file that it cannot read, and its "No such file or directory" may
/// remain from an earlier call, so this checks the files themselves.
std::optional<std::string> unreadable_file(const MysqlAddress& address) {
  for (const auto& [option, path] :
       {std::pair("ssl-ca", &address.ca), std::pair("ssl-cert", &address.certificate),
        std::pair("ssl-key", &address.key)}) {
    if (path->empty() || access(path->c_str(), R_OK) == 0) continue;
    const char* const why = std::strerror(errno);
    return std::string(option) + ": cannot read \"" + escaped(*path) + "\": " + why;
  }
  return std::nullopt;
}

}  // namespace

const LibMariaDb& libmariadb() {
  static const LibMariaDb functions = load_libmariadb();
  return functions;
}

Error connect_error(unsigned error, const std::string& message, const MysqlAddress& address,
                    const std::string& shown) {
  const std::string said = shown + ": " + escaped(message);
  if (error != CR_SSL_CONNECTION_ERROR) {
    if (refuses_login(error)) return {ErrorKind::denied, said, Cause::password_wrong};
    return {ErrorKind::unavailable, said, is_full(error) ? Cause::too_many_clients : Cause::none};
  }
  if (const auto fault = unreadable_file(address)) {
    return {ErrorKind::usage, shown + ": " + *fault};
  }
  const ErrorKind kind = kind_of_tls(message);
  return {kind, said, kind == ErrorKind::denied ? Cause::certificate : Cause::none};
}

void MysqlConnection::close() {
  if (mysql_ == nullptr) return;
  const PipeSignalHeld held;
  libmariadb().mysql_close(mysql_);
  mysql_ = nullptr;
}

/// Closes in the middle of a call: the library's goodbye must not wait for a silent server.
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

void MysqlConnection::give_up(const CallOptions& call_options) {
  abandon();
  if (readable(call_options.cancel_fd)) throw_interrupted();
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
  const bool by_library = fds[1].revents != 0 || until < call_options.deadline;
  // A server that sends without end gets no more time than a silent one.
  const bool in_time = by_library && BootClock::now() < call_options.deadline;
  if (fds[0].revents != 0 || !in_time) give_up(call_options);
  return fds[1].revents == 0 ? MYSQL_WAIT_TIMEOUT : library_events(fds[1].revents);
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
  // A packet contains at most one row with one record; the library would accept a gigabyte.
  constexpr unsigned long largest_packet = 4UL << 20;
  set(MYSQL_OPT_NONBLOCK, nullptr);
  set(MYSQL_OPT_MAX_ALLOWED_PACKET, &largest_packet);
  // A server must not request files of this host.
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
  // `localhost` without a port means the socket, as always with this library.
  const bool by_socket = address_.host.empty() || (address_.host == "localhost" && !address_.port);
  if (by_socket) return {address_.host};
  std::vector<std::string> found;
  try {
    found = resolve_in_digits(address_.host, call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    throw error.reworded(shown_ + ": " + error.what());
  }
  // The library needs the name to compare it with the certificate, and looks it up once more.
  if (address_.tls == MysqlAddress::Tls::verified) return {address_.host};
  return found;
}

/// Refuses a Unix socket on which no server listens. libmariadb would close its descriptor twice,
/// and the second close would hit a file that another thread has opened meanwhile. Connecting a
/// socket of another type shows whether there is a server, without the server noticing.
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

void MysqlConnection::log_in(const std::string& host, const CallOptions& call_options) {
  refuse_dead_socket();
  mysql_ = libmariadb().mysql_init(nullptr);
  if (mysql_ == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
  set_options();
  const auto text = [](const std::string& value) {
    return value.empty() ? nullptr : value.c_str();
  };
  // A flag, unlike an option, cannot be cleared by an option file.
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
  if (connected != nullptr) return;
  const bool in_time = BootClock::now() < call_options.deadline;
  if (!in_time || readable(call_options.cancel_fd)) give_up(call_options);
  throw connect_error(libmariadb().mysql_errno(mysql_), libmariadb().mysql_error(mysql_), address_,
                      shown_)
      .after_good_files(count_ > 0);
}

void MysqlConnection::connect(const CallOptions& call_options) {
  // Data on an idle connection means that the server closes it.
  if (is_open() && at_rest_ && !readable(answered_fd())) return;
  close();
  at_rest_ = false;
  const auto all = hosts(call_options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t left = all.size() - i;
    try {
      log_in(all[i], share_of(call_options, left));
      break;
    } catch (const Error& error) {
      if (mysql_ != nullptr) abandon();
      // Another address of the host may be reachable.
      if (error.kind() != ErrorKind::unavailable || left == 1) throw;
    }
  }
  refuse_plain_text();
  const int fd = answered_fd();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  // In blocking mode a read under TLS would block until data comes.
  fcntl(fd, F_SETFL, O_NONBLOCK);
  // An option file may have enabled it: a new session would then silently replace this one.
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
