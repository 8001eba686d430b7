#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/call_options.hpp"
#include "base/password.hpp"
#include "sql/libpq.hpp"
#include "sql/postgres_hosts.hpp"

namespace dlock {

/// How to reach a database.
struct PostgresTerms {
  std::string url;                     ///< as libpq takes it, and perhaps `dlock-schema`
  std::optional<Password> password{};  ///< goes before the one that the URL or libpq knows
  std::string shown;                   ///< the URL for people: without login and parameters
};

/// One result of a statement.
class PostgresResult {
 public:
  explicit PostgresResult(LibPqPtr<PGresult> result) : result_(std::move(result)) {}
  bool failed() const;
  /// Five characters that name the error of a failed one; see Appendix A of PostgreSQL's manual.
  std::string sqlstate() const { return field(PG_DIAG_SQLSTATE); }
  std::string message() const { return field(PG_DIAG_MESSAGE_PRIMARY); }
  int rows() const { return libpq().PQntuples(result_.get()); }
  /// Nothing for NULL.
  std::optional<std::string_view> value(int row, int column) const;

 private:
  std::string field(int code) const;
  LibPqPtr<PGresult> result_;
};

/// Cuts the parameter `dlock-schema`, which is not libpq's, out of a URL; its value.
std::string take_schema(std::string& url);

/// A connection to PostgreSQL, opened by the first query and again after it broke. Every call ends
/// by its deadline. One thread uses it at a time.
class PostgresConnection {
 public:
  explicit PostgresConnection(PostgresTerms terms);

  /// Sends statements in one message; their results, up to the first that failed. Throws
  /// Error{unavailable}, Error{denied}, or where a file for TLS is wrong Error{usage}, if it cannot
  /// connect, and Error{unavailable} if the connection breaks: then the server may have done the
  /// statements.
  std::vector<PostgresResult> query(const std::string& statements, const CallOptions& call_options);

  struct Notification {
    std::string channel;
    std::string message;
  };
  /// The next one; nothing at the deadline. Throws Error{unavailable} if the connection is broken.
  std::optional<Notification> next_notification(const CallOptions& call_options);

  /// Connects unless there is a connection that is not known to be broken.
  void connect(const CallOptions& call_options);
  bool is_open() const { return connection_ != nullptr; }
  bool in_transaction() const;
  /// How many there have been.
  int count() const { return count_; }
  /// The process that the login named; a pooler names another than serves the queries.
  int login_pid() const { return libpq().PQbackendPID(connection_.get()); }
  void close() { connection_.reset(); }
  const std::string& name() const { return terms_.shown; }
  /// The `dlock-schema` of the URL, or nothing.
  const std::string& schema() const { return schema_; }

 private:
  bool is_stale() const;
  std::vector<PostgresHost> addresses(const CallOptions& call_options) const;
  /// Null: as the URL says.
  void connect_to(const PostgresHost* host, const CallOptions& call_options);
  void flush(const CallOptions& call_options);
  void wait(short events, const CallOptions& call_options);
  [[noreturn]] void cannot_connect();
  [[noreturn]] void broke();

  PostgresTerms terms_;
  std::string schema_;
  LibPqPtr<PGconn> connection_;
  int count_ = 0;
};

}  // namespace dlock
