#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "cas/cas_backend.hpp"
#include "sql/database.hpp"
#include "sql/dialect.hpp"

namespace dlock {

/// The reason why a statement failed, as far as it makes a difference.
enum class SqlError {
  none,
  overtaken,    ///< another transaction was faster, and the server has rolled this one back
  row_locked,   ///< another transaction has kept the row locked for too long
  no_table,     ///< there is no table `dlock`
  other_table,  ///< the table `dlock` has other columns than dlock's own
  denied,       ///< a right is missing, or the login is refused
  read_only,
  full,  ///< the server has no connection left
  other,
};

/// The result of one statement.
struct SqlResult {
  SqlError error = SqlError::none;
  std::string message{};
  std::int64_t affected = 0;  ///< in MySQL, the number of rows that it changed
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
  /// The same as ask() in two steps: fd() becomes readable in between.
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

/// A connection by either client library. `shown`: the URL for users; `password` overrides that of
/// the URL or of libpq.
std::unique_ptr<SqlConnection> postgres_connection(const std::string& url, const std::string& shown,
                                                   const std::optional<Password>& password = {});
std::unique_ptr<SqlConnection> mysql_connection(MysqlAddress address, const std::string& shown);

/// Returns the parameter `dlock-schema` of a URL of PostgreSQL, empty if the URL has none, and the
/// URL `without` the parameter, which libpq does not know.
std::string schema_in(std::string_view url, std::string* without = nullptr);

/// MySQL aborts a statement that waits for a row longer than this.
constexpr std::chrono::seconds longest_row_wait{1};

/// The error for `said`, a client library's text about a failed TLS handshake; `message` is for
/// users. The text tells the kind, because the libraries supply nothing else. The kinds are those
/// of dlock's own TLS (net/tls.hpp). Usage: a file of this host is missing or wrong. Denied: one
/// side does not accept the certificate or the name of the other. Any other error is unavailable:
/// it may pass, so a waiter goes on.
Error tls_error(std::string_view said, const std::string& message);

/// The statement that an administrator runs if dlock's user may not create tables; `table` is the
/// name in SQL syntax, by default that of the dialect.
std::string create_statement(const SqlDialect& dialect, std::string_view table = {});

/// The start of a statement of PostgreSQL. It defines `ours`, all tables of locks in the database
/// (oid, name, whether the user chose it), and `target`, the schema for a new one: `schema`, or
/// `public`.
std::string with_tables(const std::string& schema);

/// Any bytes as an SQL expression in hexadecimal digits.
std::string bytes_literal(std::string_view bytes, const SqlDialect& dialect);

/// A text of letters, digits, blanks and `_.-` in quotes. Throws Error{bug} for any other text.
std::string quoted(const std::string& text);

/// Records as rows of one table. One message is one request. The backend prepares no statement,
/// because that would bind a pooler's session to this client, and writes all values in digits,
/// which need no quotes.
class SqlBackend : public CasBackend {
 public:
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  void close() override { connection_->close(); }
  std::string name() const override { return connection_->name(); }

 protected:
  SqlBackend(std::unique_ptr<SqlConnection> connection, const SqlDialect& dialect)
      : table_(dialect.table), connection_(std::move(connection)), dialect_(dialect) {}

  /// Connects if necessary, and prepares a new connection by begin_session().
  void prepare(const CallOptions& call_options);
  virtual void begin_session(const CallOptions& call_options) = 0;

  SqlConnection& connection() const { return *connection_; }
  std::string login_id() const { return std::to_string(connection_->login_id()); }

  /// Returns the results of `statements`. If the table does not exist, creates it and asks again.
  std::vector<SqlResult> run(const std::string& statements, const CallOptions& call_options);
  /// Like run(), but throws if a statement failed.
  std::vector<SqlResult> done(const std::string& statements, const CallOptions& call_options);
  void create_table(const CallOptions& call_options);
  /// Creates the table, because the server has none of this name. An override may throw instead.
  virtual void replace_table(const CallOptions& call_options) { create_table(call_options); }
  /// Closes, and throws the error for a failed result; `doing` begins the message.
  [[noreturn]] void refuse(const SqlResult& failed, const std::string& doing = {});
  [[noreturn]] void refuse_replica();

  /// Selects one row: the clock, whether the server is read-only, and the ids of the clients that
  /// live, separated by blanks: of those in the record if the ids of all are not known.
  virtual std::string select_state(const std::string& record) = 0;
  /// Selects a record, and the state of the server after it. A clock older than the record would
  /// shorten another client's lease.
  std::string select_record(const std::string& name);
  /// Reads a record in one message, which begins with `before`.
  Snapshot select(const std::string& name, const CallOptions& call_options,
                  const std::string& before = {});
  /// The snapshot from the results of select_record().
  virtual Snapshot snapshot_from(const SqlResult& record, const SqlResult& state, Deadline sent,
                                 const CallOptions& call_options);
  Snapshot state_from(const SqlResult& state, Deadline sent);
  /// The clients that live, of those in the records of a page.
  virtual std::optional<Lives> lives_of(const std::vector<NamedRecord>& records,
                                        const CallOptions& call_options) = 0;

  /// Connects, and returns the version for a write over `over`. Throws if the update begins a life
  /// of an earlier connection.
  Version begin_write(const Snapshot& over, const Update& update, const CallOptions& call_options);
  std::string insert_statement(const std::string& name, const Update& update,
                               Version version) const;
  /// The statement that replaces a record which still has the version `over`.
  std::string update_statement(const std::string& name, Version over, const Update& update,
                               Version version) const;
  std::string literal(std::string_view bytes) const { return bytes_literal(bytes, dialect_); }

  std::string table_;  ///< the name of the table in SQL syntax
  /// The server has few connections left. A waiter then keeps none while it sleeps, because holders
  /// need them to renew, and polls.
  bool crowded_ = false;

 private:
  /// The part from WHERE on that selects the first `rows` records with `prefix` and after `after`.
  std::string page_condition(const std::string& prefix, const std::string& after, int rows) const;
  std::string is_under(const std::string& prefix) const;

  const std::unique_ptr<SqlConnection> connection_;
  const SqlDialect& dialect_;
  int known_connection_ = 0;  ///< the connection for which begin_session() was called
};

/// A name for the channel of a client's messages.
std::string new_channel();

/// A value that is a whole number, or 0.
std::int64_t number_in(const std::optional<std::string>& value);

}  // namespace dlock
