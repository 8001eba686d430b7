#include "sql/libpq.hpp"

#include <dlfcn.h>

#include <string>

#include "base/error.hpp"
#include "base/escape.hpp"

namespace dlock {
namespace {

[[noreturn]] void libpq_is_missing() {
  const char* why = dlerror();
  throw Error(ErrorKind::host_refused,
              "locks in PostgreSQL need libpq, on Debian the package libpq5: " +
                  escaped(why == nullptr ? "" : why));
}

LibPq load_libpq() {
  void* const handle = dlopen("libpq.so.5", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) libpq_is_missing();
  LibPq loaded{};
#define DLOCK_LIBPQ_LOAD(name)                                             \
  loaded.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (loaded.name == nullptr) libpq_is_missing();
  DLOCK_LIBPQ_FUNCTIONS(DLOCK_LIBPQ_LOAD)
#undef DLOCK_LIBPQ_LOAD
  return loaded;
}

}  // namespace

const LibPq& libpq() {
  // Never closed again: its libraries have exit handlers of their own.
  static const LibPq functions = load_libpq();
  return functions;
}

}  // namespace dlock
