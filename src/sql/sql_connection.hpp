#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "sql/database.hpp"

namespace dlock {

/// The reason why a statement failed, as far as it makes a difference.
enum class SqlError {
  none,
  overtaken,    ///< another transaction was faster, and the server has rolled this one back
  row_locked,   ///< another transaction has kept the row locked for too long
  no_table,     ///< there is no table `dlock`
  other_table,  ///< the table `dlock` has other columns than dlock's own
  denied,
  read_only,
  other,
};

/// The result of one statement.
struct SqlResult {
  SqlError error = SqlError::none;
  std::string message{};
  std::int64_t affected = 0;  ///< the number of rows that it changed or returned
  std::vector<std::vector<std::optional<std::string>>> rows{};  ///< a value is nothing for NULL

  bool failed() const { return error != SqlError::none; }
  /// A value of the first row; NULL if there is no row.
  std::optional<std::string> first(std::size_t column = 0) const {
    return rows.empty() ? std::nullopt : rows.front().at(column);
  }
};

/// A connection to a database, opened by the first query and again after it broke. Every call ends
/// by its deadline. One thread uses it at a time.
class SqlConnection {
 public:
  virtual ~SqlConnection() = default;
  SqlConnection(const SqlConnection&) = delete;
  SqlConnection& operator=(const SqlConnection&) = delete;

  /// Connects unless there is a connection that is not known to be broken. Throws
  /// Error{unavailable}, Error{denied}, or Error{usage} for a wrong TLS file.
  void connect(const CallOptions& call_options);

  /// Sends statements in one message on the open connection, and returns their results, up to the
  /// first that failed. If the connection breaks, it throws Error{unavailable}: the server may have
  /// executed the statements.
  std::vector<SqlResult> ask(const std::string& statements, const CallOptions& call_options);
  /// Does so in two steps: fd() becomes readable in between.
  virtual void send(const std::string& statements, const CallOptions& call_options) = 0;
  virtual std::vector<SqlResult> receive(const CallOptions& call_options) = 0;
  virtual int fd() const = 0;

  /// Connects if necessary, and asks.
  std::vector<SqlResult> query(const std::string& statements, const CallOptions& call_options) {
    connect(call_options);
    return ask(statements, call_options);
  }

  struct Notification {
    std::string channel;
    std::string message;
  };
  /// Returns the next notification that has arrived. Throws Error{unavailable} if the connection is
  /// broken.
  virtual std::optional<Notification> next_notification() { return std::nullopt; }

  virtual bool is_open() const = 0;
  virtual void close() = 0;
  /// How many connections there have been.
  int count() const { return count_; }
  /// The session from the login; behind a pooler or proxy, another session serves the queries.
  std::int64_t login_id() const { return login_id_; }
  /// The URL for users.
  const std::string& name() const { return shown_; }

 protected:
  explicit SqlConnection(std::string shown) : shown_(std::move(shown)) {}

  /// A server to try; empty fields: as the URL says.
  struct Host {
    std::string name{};
    std::string address{};  ///< in digits; empty: a socket
    std::string port{};
  };
  /// Returns the hosts in order.
  virtual std::vector<Host> hosts(const CallOptions& call_options) = 0;
  /// Logs in, and returns the id of the session.
  virtual std::int64_t log_in(const Host& host, const CallOptions& call_options) = 0;
  /// Whether the open connection is known to be broken.
  virtual bool is_stale() = 0;
  /// Closes in the middle of a call.
  virtual void abandon() { close(); }

  /// Waits for events of fd() and returns those that came.
  short await(short events, const CallOptions& call_options);
  /// Closes and throws, at the deadline or if the call is cancelled.
  [[noreturn]] void give_up(const CallOptions& call_options);
  [[noreturn]] void broke(const std::string& message);

 private:
  std::string shown_;
  std::int64_t login_id_ = 0;
  int count_ = 0;
};

/// The connections of both libraries. `shown`: the URL for users; `password` overrides that of the
/// URL or of libpq.
std::unique_ptr<SqlConnection> postgres_connection(const std::string& url, const std::string& shown,
                                                   const std::optional<Password>& password = {});
std::unique_ptr<SqlConnection> mysql_connection(MysqlAddress address, const std::string& shown);

/// Removes the parameter `dlock-schema`, which libpq does not know, from a URL of PostgreSQL and
/// returns its value.
std::string take_schema(std::string& url);

/// MySQL aborts a statement that waits for a row longer than this.
constexpr std::chrono::seconds longest_row_wait{1};

/// The error for `said`, a client library's text about a failed TLS handshake; `message` is for
/// users. The text tells the kind, because the libraries supply nothing else. The kinds are those
/// of dlock's own TLS (net/tls.hpp). Usage: a file of this host is missing or wrong. Denied: one
/// side does not accept the certificate or the name of the other. Any other error is unavailable:
/// it may pass, so a waiter goes on.
Error tls_error(std::string_view said, const std::string& message);

}  // namespace dlock
