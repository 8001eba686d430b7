#include "etcd/libcurl.hpp"

#include "base/error.hpp"
#include "base/shared_library.hpp"

namespace dlock {
namespace {

LibCurl load_libcurl() {
  const SharedLibrary library("libcurl.so.4",
                              "locks in etcd need libcurl, on Debian the package libcurl4");
  LibCurl loaded{};
#define DLOCK_LIBCURL_LOAD(name) library.find(#name, loaded.name);
  DLOCK_LIBCURL_FUNCTIONS(DLOCK_LIBCURL_LOAD)
#undef DLOCK_LIBCURL_LOAD
  if (loaded.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw Error(ErrorKind::host_refused, "libcurl cannot be used on this host");
  }
  return loaded;
}

}  // namespace

const LibCurl& libcurl() {
  static const LibCurl functions = load_libcurl();
  return functions;
}

}  // namespace dlock
