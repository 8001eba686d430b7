#pragma once

#include <mysql.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "sql/database.hpp"

// A list for two uses: the members of LibMariaDb, and their loading.
#define DLOCK_LIBMARIADB_FUNCTIONS(EACH) \
  EACH(mariadb_get_infov)                \
  EACH(mysql_affected_rows)              \
  EACH(mysql_close)                      \
  EACH(mysql_errno)                      \
  EACH(mysql_error)                      \
  EACH(mysql_fetch_lengths)              \
  EACH(mysql_fetch_row)                  \
  EACH(mysql_free_result)                \
  EACH(mysql_get_socket)                 \
  EACH(mysql_get_timeout_value_ms)       \
  EACH(mysql_init)                       \
  EACH(mysql_next_result_cont)           \
  EACH(mysql_next_result_start)          \
  EACH(mysql_num_fields)                 \
  EACH(mysql_options)                    \
  EACH(mysql_options4)                   \
  EACH(mysql_read_query_result_cont)     \
  EACH(mysql_read_query_result_start)    \
  EACH(mysql_real_connect_cont)          \
  EACH(mysql_real_connect_start)         \
  EACH(mysql_send_query_cont)            \
  EACH(mysql_send_query_start)           \
  EACH(mysql_server_init)                \
  EACH(mysql_store_result_cont)          \
  EACH(mysql_store_result_start)         \
  EACH(mysql_thread_id)

namespace dlock {

/// The functions of libmariadb that dlock uses, by their own names.
struct LibMariaDb {
#define DLOCK_LIBMARIADB_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBMARIADB_FUNCTIONS(DLOCK_LIBMARIADB_MEMBER)
#undef DLOCK_LIBMARIADB_MEMBER
};

/// Loads the library at the first call, so that a run on another engine does not pay for it. Throws
/// Error{host_refused} if it is not installed.
const LibMariaDb& libmariadb();

/// Frees the objects of libmariadb.
struct LibMariaDbFree {
  void operator()(MYSQL_RES* result) const { libmariadb().mysql_free_result(result); }
};

using MysqlResultPtr = std::unique_ptr<MYSQL_RES, LibMariaDbFree>;

/// The result of one statement.
struct MysqlResult {
  /// The columns of a row; columns that the server has not sent are NULL.
  struct Row {
    std::vector<std::optional<std::string>> columns;
    const std::optional<std::string>& operator[](std::size_t column) const {
      static const std::optional<std::string> null;
      return column < columns.size() ? columns[column] : null;
    }
  };

  unsigned error = 0;  ///< the server's error number, as in mysqld_error.h; 0: none
  std::string message{};
  std::int64_t affected = 0;  ///< how many rows it changed
  std::vector<Row> rows{};

  bool failed() const { return error != 0; }
  /// The first row; a row of NULLs if there is none.
  const Row& first() const {
    static const Row nulls;
    return rows.empty() ? nulls : rows.front();
  }
};

/// The error to throw after a failure to connect. `shown`: the URL for users.
Error connect_error(unsigned error, const std::string& message, const MysqlAddress& address,
                    const std::string& shown);

/// The server aborts a statement that waits for a row longer than this.
constexpr std::chrono::seconds longest_row_wait{1};

/// A connection to MySQL or MariaDB, opened by the first query and again after it broke. Every call
/// ends by its deadline. One thread uses it at a time.
class MysqlConnection {
 public:
  /// `shown`: the URL for users.
  MysqlConnection(MysqlAddress address, std::string shown)
      : address_(std::move(address)), shown_(std::move(shown)) {}
  ~MysqlConnection() { close(); }
  MysqlConnection(const MysqlConnection&) = delete;
  MysqlConnection& operator=(const MysqlConnection&) = delete;

  /// Sends statements in one message and returns their results, up to the first that failed. If it
  /// cannot connect, it throws Error{unavailable}, Error{denied}, or Error{usage} for a wrong TLS
  /// file. If the connection breaks, it throws Error{unavailable}: the server may have executed the
  /// statements.
  std::vector<MysqlResult> query(const std::string& statements, const CallOptions& call_options);

  /// Sends and receives a statement that changes nothing, in two steps: answered_fd() becomes
  /// readable in between.
  void send(const std::string& statement, const CallOptions& call_options);
  std::vector<MysqlResult> receive(const CallOptions& call_options);
  int answered_fd() const { return static_cast<int>(libmariadb().mysql_get_socket(mysql_)); }

  /// Connects unless there is a connection that is not known to be broken.
  void connect(const CallOptions& call_options);
  bool is_open() const { return mysql_ != nullptr; }
  /// How many connections there have been.
  int count() const { return count_; }
  /// The session id from the login; behind a proxy, another session serves the queries.
  std::uint64_t login_id() const { return login_id_; }
  void close();
  const std::string& name() const { return shown_; }

 private:
  /// The start of a call, and its continuation after events. Both return the events for which the
  /// call waits, 0 if it is done.
  using Begin = std::function<int()>;
  using Continue = std::function<int(int events)>;
  void carry_out(const Begin& begin, const Continue& go_on, const CallOptions& call_options);
  int wait(int status, const CallOptions& call_options);
  void abandon();
  [[noreturn]] void give_up(const CallOptions& call_options);
  void set_options();
  /// The hosts to try, in order; an empty one means the library's own default.
  std::vector<std::string> hosts(const CallOptions& call_options) const;
  void refuse_dead_socket() const;
  /// Throws if it does not succeed, and leaves the rest to abandon().
  void log_in(const std::string& host, const CallOptions& call_options);
  void refuse_plain_text();
  void send_here(const std::string& text, const CallOptions& call_options);
  MysqlResult take_result(bool failed, const CallOptions& call_options);
  [[noreturn]] void broke();

  MysqlAddress address_;
  std::string shown_;
  MYSQL* mysql_ = nullptr;
  bool at_rest_ = false;    ///< no library call is in progress
  bool is_set_up_ = false;  ///< session_settings() were sent
  std::uint64_t login_id_ = 0;
  int count_ = 0;
};

}  // namespace dlock
