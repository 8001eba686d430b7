#include "sql/libmariadb.hpp"

#include <signal.h>

#include "base/shared_library.hpp"

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

}  // namespace dlock
