#include "sql/libmariadb.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <string>

#include "base/error.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

[[noreturn]] void libmariadb_is_missing() {
  const char* why = dlerror();
  throw Error(ErrorKind::host_refused,
              "locks in MySQL or MariaDB need libmariadb, on Debian the package libmariadb3: " +
                  escaped(why == nullptr ? "" : why));
}

LibMariaDb load_libmariadb() {
  void* const handle = dlopen("libmariadb.so.3", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) libmariadb_is_missing();
  LibMariaDb loaded{};
#define DLOCK_LIBMARIADB_LOAD(name)                                        \
  loaded.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (loaded.name == nullptr) libmariadb_is_missing();
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
  // Never closed again: its libraries have exit handlers of their own.
  static const LibMariaDb functions = load_libmariadb();
  return functions;
}

}  // namespace dlock
