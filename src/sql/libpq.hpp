#pragma once

#include <libpq-fe.h>

#include <memory>

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

/// The functions of libpq that are used, by their own names.
struct LibPq {
#define DLOCK_LIBPQ_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBPQ_FUNCTIONS(DLOCK_LIBPQ_MEMBER)
#undef DLOCK_LIBPQ_MEMBER
};

/// Loads the library at the first call: it brings 25 others along, which a run on another engine
/// must not pay for. Throws Error{host_refused} if it is not installed.
const LibPq& libpq();

/// Frees what libpq made.
struct LibPqFree {
  void operator()(PGconn* connection) const { libpq().PQfinish(connection); }
  void operator()(PGresult* result) const { libpq().PQclear(result); }
  void operator()(PQconninfoOption* options) const { libpq().PQconninfoFree(options); }
  void operator()(PGnotify* notify) const { libpq().PQfreemem(notify); }
};

template <typename T>
using LibPqPtr = std::unique_ptr<T, LibPqFree>;

}  // namespace dlock
