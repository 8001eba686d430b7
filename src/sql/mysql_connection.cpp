#include <errmsg.h>
#include <fcntl.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/fd.hpp"
#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "net/resolve.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

/// The functions of libmariadb that dlock uses.
struct LibMariaDb {
  SharedLibrary library{
      "libmariadb.so.3",
      "locks in MySQL or MariaDB need libmariadb, on Debian the package libmariadb3"};
  DLOCK_LIBRARY_FUNCTIONS(mariadb_get_infov, mysql_affected_rows, mysql_close, mysql_errno,
                          mysql_error)
  DLOCK_LIBRARY_FUNCTIONS(mysql_fetch_lengths, mysql_fetch_row, mysql_free_result, mysql_get_socket,
                          mysql_init)
  DLOCK_LIBRARY_FUNCTIONS(mysql_next_result_cont, mysql_next_result_start, mysql_num_fields,
                          mysql_options, mysql_options4)
  DLOCK_LIBRARY_FUNCTIONS(mysql_read_query_result_cont, mysql_read_query_result_start,
                          mysql_real_connect_cont, mysql_real_connect_start, mysql_send_query_cont)
  DLOCK_LIBRARY_FUNCTIONS(mysql_send_query_start, mysql_server_init, mysql_store_result_cont,
                          mysql_store_result_start, mysql_thread_id)

  LibMariaDb() {
    // The library ignores SIGPIPE for the whole process, and dlock's command would inherit that.
    struct sigaction before {};
    sigaction(SIGPIPE, nullptr, &before);
    mysql_server_init(0, nullptr, nullptr);
    sigaction(SIGPIPE, &before, nullptr);
  }
};

/// Loads the library at the first call, so that a run on another engine does not pay for it. Throws
/// Error{host_refused} if it is not installed.
const LibMariaDb& libmariadb() {
  static const LibMariaDb functions;
  return functions;
}

/// Does `work`, and shuts down the socket `fd` at the deadline or when the call is cancelled:
/// during a TLS handshake the library itself waits for the server, without a limit.
template <typename Work>
int within_limit(int fd, const CallOptions& call_options, const Work& work) {
  const Event over;
  const Fd socket(dup(fd));  // open for as long as the thread may shut it down
  std::thread limit = start_thread([&] {
    pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}, {over.fd(), POLLIN, 0}};
    const int ready = poll_until(fds, call_options.deadline);
    if (ready == 0 || fds[0].revents != 0) shutdown(socket.get(), SHUT_RDWR);
  });
  const int status = work();
  over.raise();
  limit.join();
  return status;
}

/// These settings precede the first statements of a connection, after the server's init_connect.
/// With them each statement commits, does not wait for locks long after its client has given up,
/// and means the same on every server.
std::string session_settings() {
  return "SET autocommit = 1, innodb_lock_wait_timeout = " +
         std::to_string(longest_row_wait.count()) +
         ", lock_wait_timeout = 5, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'; ";
}

/// Refuses a Unix socket on which no server listens. libmariadb would close its descriptor twice,
/// and the second close would hit a file that another thread has opened meanwhile. Connecting a
/// socket of another type shows whether there is a server, without the server noticing.
void refuse_dead_socket(const std::string& path, const std::string& shown) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  const Fd probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) throw_errno("socket");
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (connect(probe.get(), at, sizeof address) == 0 || errno == EPROTOTYPE) return;
  throw_unavailable(shown + ": cannot connect to the socket " + escaped(path) + ": " +
                    std::strerror(errno));
}

SqlError meaning_of(unsigned error) {
  constexpr unsigned locked_in_mysql = 3118;
  const auto is_one_of = [error](std::initializer_list<unsigned> errors) {
    return std::find(errors.begin(), errors.end(), error) != errors.end();
  };
  if (is_one_of({ER_DUP_ENTRY, ER_LOCK_DEADLOCK, ER_CHECKREAD})) return SqlError::overtaken;
  if (error == ER_LOCK_WAIT_TIMEOUT) return SqlError::row_locked;
  if (error == ER_NO_SUCH_TABLE) return SqlError::no_table;
  if (is_one_of(
          {ER_BAD_FIELD_ERROR, ER_NO_DEFAULT_FOR_FIELD, ER_TRUNCATED_WRONG_VALUE_FOR_FIELD})) {
    return SqlError::other_table;
  }
  if (is_one_of({ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR,
                 ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR,
                 ER_DBACCESS_DENIED_ERROR, ER_HOST_NOT_PRIVILEGED, ER_MUST_CHANGE_PASSWORD_LOGIN,
                 ER_ACCOUNT_HAS_BEEN_LOCKED, CR_AUTH_PLUGIN_CANNOT_LOAD, locked_in_mysql})) {
    return SqlError::denied;
  }
  if (is_one_of({ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED})) {
    return SqlError::full;
  }
  const bool is_read_only = is_one_of(
      {ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION});
  return is_read_only ? SqlError::read_only : SqlError::other;
}

class MysqlConnection final : public SqlConnection {
 public:
  MysqlConnection(MysqlAddress address, const std::string& shown)
      : SqlConnection(shown), address_(std::move(address)) {}
  ~MysqlConnection() override { MysqlConnection::close(); }

  void send(const std::string& statements, const CallOptions& call_options) override {
    const std::string text = is_set_up_ ? statements : session_settings() + statements;
    const auto& lib = libmariadb();
    const int failed = call(call_options, lib.mysql_send_query_start, lib.mysql_send_query_cont,
                            text.c_str(), text.size());
    if (failed != 0) broke(lib.mysql_error(mysql_));
  }

  std::vector<SqlResult> receive(const CallOptions& call_options) override {
    const auto& lib = libmariadb();
    const auto refused =
        call(call_options, lib.mysql_read_query_result_start, lib.mysql_read_query_result_cont);
    std::vector<SqlResult> results;
    results.push_back(take_result(refused != 0, call_options));
    while (!results.back().failed()) {
      const int next = call(call_options, lib.mysql_next_result_start, lib.mysql_next_result_cont);
      if (next < 0) break;
      results.push_back(take_result(next > 0, call_options));
    }
    if (is_set_up_ || results.size() == 1) return results;
    is_set_up_ = true;
    results.erase(results.begin());
    return results;
  }

  int fd() const override { return static_cast<int>(libmariadb().mysql_get_socket(mysql_)); }
  bool is_open() const override { return mysql_ != nullptr; }

  void close() override {
    if (mysql_ == nullptr) return;
    const PipeSignalHeld held;
    libmariadb().mysql_close(std::exchange(mysql_, nullptr));
    is_logged_in_ = false;
  }

 private:
  std::vector<Host> hosts(const CallOptions& call_options) override {
    // `localhost` without a port means the socket, as always with this library.
    const bool by_socket =
        address_.host.empty() || (address_.host == "localhost" && !address_.port);
    if (by_socket) return {{address_.host}};
    std::vector<Host> found;
    for (std::string& address : resolve_in_digits(address_.host, call_options)) {
      found.push_back({address_.host, std::move(address)});
    }
    // The library needs the name to compare it with the certificate, and looks it up once more.
    if (address_.tls == MysqlAddress::Tls::verified) return {{address_.host}};
    return found;
  }

  std::int64_t log_in(const Host& host, const CallOptions& call_options) override {
    refuse_dead_socket(address_.socket_path, name());
    const auto& lib = libmariadb();
    mysql_ = lib.mysql_init(nullptr);
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
    const MYSQL* const connected =
        call(call_options, lib.mysql_real_connect_start, lib.mysql_real_connect_cont,
             text(host.address.empty() ? host.name : host.address),
             address_.user ? address_.user->c_str() : nullptr,
             address_.password ? password.c_str() : nullptr, address_.database.c_str(),
             static_cast<unsigned>(address_.port), text(address_.socket_path), flags);
    if (connected == nullptr) refuse_login(call_options);
    refuse_plain_text();
    fcntl(fd(), F_SETFD, FD_CLOEXEC);
    // In blocking mode a read under TLS would block until data comes.
    fcntl(fd(), F_SETFL, O_NONBLOCK);
    // An option file may have enabled reconnecting: a new session would silently replace this one.
    constexpr my_bool no = 0;
    lib.mysql_options(mysql_, MYSQL_OPT_RECONNECT, &no);
    is_logged_in_ = true;
    is_set_up_ = false;
    return static_cast<std::int64_t>(lib.mysql_thread_id(mysql_));
  }

  /// Data on an idle connection means that the server closes it.
  bool is_stale() override { return readable(fd()); }

  /// The library's goodbye must not wait for a silent server.
  void abandon() override {
    if (mysql_ != nullptr && fd() >= 0) shutdown(fd(), SHUT_RDWR);
    close();
  }

  /// Carries out a call of the library, which begins with `start` and continues after each event.
  template <typename Answer, typename... Arguments>
  Answer call(const CallOptions& call_options, int (*start)(Answer*, MYSQL*, Arguments...),
              int (*go_on)(Answer*, MYSQL*, int), std::type_identity_t<Arguments>... arguments) {
    const PipeSignalHeld held;
    Answer answer{};
    int status = start(&answer, mysql_, arguments...);
    while (status != 0) {
      const int wanted = ((status & MYSQL_WAIT_READ) != 0 ? POLLIN : 0) |
                         ((status & MYSQL_WAIT_WRITE) != 0 ? POLLOUT : 0);
      const short came = await(static_cast<short>(wanted), call_options);
      // An error counts as both.
      const int events = ((came & ~POLLOUT) != 0 ? MYSQL_WAIT_READ : 0) |
                         ((came & ~POLLIN) != 0 ? MYSQL_WAIT_WRITE : 0);
      const auto next = [&] { return go_on(&answer, mysql_, events); };
      status = is_logged_in_ ? next() : within_limit(fd(), call_options, next);
    }
    return answer;
  }

  void set_options() {
    const auto set = [this](mysql_option option, const void* value) {
      libmariadb().mysql_options(mysql_, option, value);
    };
    const auto set_file = [&](mysql_option option, const char* keyword, const std::string& path) {
      if (path.empty()) return;
      // The library does not name a file that it cannot read.
      if (access(path.c_str(), R_OK) != 0) {
        throw_usage(name() + ": " + keyword + ": cannot read \"" + escaped(path) +
                    "\": " + std::strerror(errno));
      }
      set(option, path.c_str());
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
    set_file(MYSQL_OPT_SSL_CA, "ssl-ca", address_.ca);
    set_file(MYSQL_OPT_SSL_CERT, "ssl-cert", address_.certificate);
    set_file(MYSQL_OPT_SSL_KEY, "ssl-key", address_.key);
    if (address_.tls == MysqlAddress::Tls::library) return;
    set(MYSQL_OPT_SSL_ENFORCE, address_.tls == MysqlAddress::Tls::off ? &no : &yes);
    set(MYSQL_OPT_SSL_VERIFY_SERVER_CERT, address_.tls == MysqlAddress::Tls::verified ? &yes : &no);
  }

  [[noreturn]] void refuse_login(const CallOptions& call_options) {
    const bool in_time = BootClock::now() < call_options.deadline;
    if (!in_time || readable(call_options.cancel_fd)) give_up(call_options);
    const unsigned error = libmariadb().mysql_errno(mysql_);
    const std::string message = libmariadb().mysql_error(mysql_);
    const std::string said = name() + ": " + escaped(message);
    if (error == CR_SSL_CONNECTION_ERROR) throw Error(tls_error(message, said));
    const SqlError meaning = meaning_of(error);
    if (meaning == SqlError::denied) throw Error(ErrorKind::denied, said, Cause::password_wrong);
    throw_unavailable(said, meaning == SqlError::full ? Cause::too_many_clients : Cause::none);
  }

  void refuse_plain_text() const {
    const char* cipher = nullptr;
    libmariadb().mariadb_get_infov(mysql_, MARIADB_CONNECTION_SSL_CIPHER, &cipher);
    const bool wanted =
        address_.tls == MysqlAddress::Tls::encrypted || address_.tls == MysqlAddress::Tls::verified;
    if (wanted && cipher == nullptr) throw_unavailable(name() + ": the server speaks no TLS");
  }

  SqlResult take_result(bool failed, const CallOptions& call_options) {
    const auto& lib = libmariadb();
    SqlResult result;
    std::unique_ptr<MYSQL_RES, decltype(lib.mysql_free_result)> stored(nullptr,
                                                                       lib.mysql_free_result);
    if (!failed) {
      stored.reset(call(call_options, lib.mysql_store_result_start, lib.mysql_store_result_cont));
    }
    const unsigned error = lib.mysql_errno(mysql_);
    if (stored == nullptr && error != 0) {
      constexpr unsigned first_of_mariadb = 5000;
      const bool is_of_library =
          (error >= CR_MIN_ERROR && error <= CR_MAX_ERROR) || error >= first_of_mariadb;
      if (is_of_library) broke(lib.mysql_error(mysql_));
      return {meaning_of(error), lib.mysql_error(mysql_)};
    }
    result.affected = static_cast<std::int64_t>(lib.mysql_affected_rows(mysql_));
    if (stored == nullptr) return result;
    const unsigned columns = lib.mysql_num_fields(stored.get());
    while (const MYSQL_ROW row = lib.mysql_fetch_row(stored.get())) {
      const unsigned long* lengths = lib.mysql_fetch_lengths(stored.get());
      auto& values = result.rows.emplace_back(columns);
      for (unsigned i = 0; i < columns; ++i) {
        if (row[i] != nullptr) values[i].emplace(row[i], lengths[i]);
      }
    }
    return result;
  }

  MysqlAddress address_;
  MYSQL* mysql_ = nullptr;
  bool is_logged_in_ = false;
  bool is_set_up_ = false;  ///< the server has answered session_settings()
};

}  // namespace

std::unique_ptr<SqlConnection> mysql_connection(MysqlAddress address, const std::string& shown) {
  return std::make_unique<MysqlConnection>(std::move(address), shown);
}

}  // namespace dlock
