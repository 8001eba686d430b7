#pragma once

#include <mysql.h>

#include <memory>

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

/// The functions of libmariadb that are used, by their own names.
struct LibMariaDb {
#define DLOCK_LIBMARIADB_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBMARIADB_FUNCTIONS(DLOCK_LIBMARIADB_MEMBER)
#undef DLOCK_LIBMARIADB_MEMBER
};

/// Loads the library at the first call, so that a run on another engine does not pay for it. Throws
/// Error{host_refused} if it is not installed.
const LibMariaDb& libmariadb();

/// Frees what libmariadb made.
struct LibMariaDbFree {
  void operator()(MYSQL_RES* result) const { libmariadb().mysql_free_result(result); }
};

using MysqlResultPtr = std::unique_ptr<MYSQL_RES, LibMariaDbFree>;

}  // namespace dlock
