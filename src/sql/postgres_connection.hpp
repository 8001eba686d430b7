#pragma once

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"

// A list for two uses: the members of LibPq, and their loading.
#define DLOCK_LIBPQ_FUNCTIONS(EACH) \
  EACH(PQbackendPID)                \
  EACH(PQclear)                     \
  EACH(PQconndefaults)              \
  EACH(PQconnectPoll)               \
  EACH(PQconnectStartParams)        \
  EACH(PQconninfoFree)              \
  EACH(PQconninfoParse)             \
  EACH(PQconnectionNeedsPassword)   \
  EACH(PQconsumeInput)              \
  EACH(PQerrorMessage)              \
  EACH(PQfinish)                    \
  EACH(PQflush)                     \
  EACH(PQfreemem)                   \
  EACH(PQgetResult)                 \
  EACH(PQgetisnull)                 \
  EACH(PQgetlength)                 \
  EACH(PQgetvalue)                  \
  EACH(PQisBusy)                    \
  EACH(PQnotifies)                  \
  EACH(PQntuples)                   \
  EACH(PQresultErrorField)          \
  EACH(PQresultStatus)              \
  EACH(PQsendQuery)                 \
  EACH(PQsetErrorVerbosity)         \
  EACH(PQsetNoticeReceiver)         \
  EACH(PQsetnonblocking)            \
  EACH(PQsocket)                    \
  EACH(PQstatus)                    \
  EACH(PQtransactionStatus)

namespace dlock {

/// The functions of libpq that dlock uses, by their own names.
struct LibPq {
#define DLOCK_LIBPQ_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBPQ_FUNCTIONS(DLOCK_LIBPQ_MEMBER)
#undef DLOCK_LIBPQ_MEMBER
};

/// Loads the library at the first call: it loads 25 others, and a run on another engine must not
/// pay for that. Throws Error{host_refused} if it is not installed.
const LibPq& libpq();

/// Frees the objects of libpq.
struct LibPqFree {
  void operator()(PGconn* connection) const { libpq().PQfinish(connection); }
  void operator()(PGresult* result) const { libpq().PQclear(result); }
  void operator()(PQconninfoOption* options) const { libpq().PQconninfoFree(options); }
  void operator()(PGnotify* notify) const { libpq().PQfreemem(notify); }
  void operator()(char* text) const { libpq().PQfreemem(text); }
};

template <typename T>
using LibPqPtr = std::unique_ptr<T, LibPqFree>;

/// One address to try: three parameters of libpq, which override those of a URL.
struct PostgresHost {
  std::string host;
  std::string hostaddr;  ///< empty: the host is a socket
  std::string port;
};

/// The address and login of a database.
struct PostgresTerms {
  std::string url;                     ///< in libpq's syntax, possibly with `dlock-schema`
  std::optional<Password> password{};  ///< overrides the password from the URL or from libpq
  std::string shown;                   ///< the URL for users: without login and parameters
};

/// One result of a statement.
class PostgresResult {
 public:
  explicit PostgresResult(LibPqPtr<PGresult> result) : result_(std::move(result)) {}
  bool failed() const;
  /// The five characters of a failed statement's error; see Appendix A of PostgreSQL's manual.
  std::string sqlstate() const { return field(PG_DIAG_SQLSTATE); }
  std::string message() const { return field(PG_DIAG_MESSAGE_PRIMARY); }
  int rows() const { return libpq().PQntuples(result_.get()); }
  /// Returns nothing for NULL.
  std::optional<std::string_view> value(int row, int column) const;

 private:
  std::string field(int code) const;
  LibPqPtr<PGresult> result_;
};

/// Removes the parameter `dlock-schema`, which libpq does not know, from a URL and returns its
/// value.
std::string take_schema(std::string& url);

/// A connection to PostgreSQL, opened by the first query and again after it broke. Every call ends
/// by its deadline. One thread uses it at a time.
class PostgresConnection {
 public:
  explicit PostgresConnection(PostgresTerms terms);

  /// Sends statements in one message and returns their results, up to the first that failed. If it
  /// cannot connect, it throws Error{unavailable}, Error{denied}, or Error{usage} for a wrong TLS
  /// file. If the connection breaks, it throws Error{unavailable}: the server may have executed the
  /// statements.
  std::vector<PostgresResult> query(const std::string& statements, const CallOptions& call_options);

  struct Notification {
    std::string channel;
    std::string message;
  };
  /// Returns the next notification; nothing at the deadline. Throws Error{unavailable} if the
  /// connection is broken.
  std::optional<Notification> next_notification(const CallOptions& call_options);

  /// Connects unless there is a connection that is not known to be broken.
  void connect(const CallOptions& call_options);
  bool is_open() const { return connection_ != nullptr; }
  bool in_transaction() const;
  /// How many connections there have been.
  int count() const { return count_; }
  /// The process id from the login; behind a pooler, another process serves the queries.
  int login_pid() const { return libpq().PQbackendPID(connection_.get()); }
  void close() { connection_.reset(); }
  const std::string& name() const { return terms_.shown; }
  /// The `dlock-schema` of the URL; empty if it has none.
  const std::string& schema() const { return schema_; }

 private:
  bool is_stale() const;
  std::vector<PostgresHost> addresses(const CallOptions& call_options) const;
  /// Null: connect as the URL says.
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
