#include "sql/libpq.hpp"

#include "base/shared_library.hpp"

namespace dlock {
namespace {

LibPq load_libpq() {
  const SharedLibrary library("libpq.so.5",
                              "locks in PostgreSQL need libpq, on Debian the package libpq5");
  LibPq loaded{};
#define DLOCK_LIBPQ_LOAD(name) library.find(#name, loaded.name);
  DLOCK_LIBPQ_FUNCTIONS(DLOCK_LIBPQ_LOAD)
#undef DLOCK_LIBPQ_LOAD
  return loaded;
}

}  // namespace

const LibPq& libpq() {
  static const LibPq functions = load_libpq();
  return functions;
}

}  // namespace dlock
