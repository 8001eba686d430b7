#pragma once

// libcurl's type checks are macros that call functions by name; its handles are types, not void.
#define CURL_DISABLE_TYPECHECK
#define CURL_STRICTER
#include <curl/curl.h>

#include <memory>

// This list is used twice: for the members of LibCurl, and to load them.
#define DLOCK_LIBCURL_FUNCTIONS(EACH) \
  EACH(curl_easy_cleanup)             \
  EACH(curl_easy_getinfo)             \
  EACH(curl_easy_init)                \
  EACH(curl_easy_setopt)              \
  EACH(curl_easy_strerror)            \
  EACH(curl_global_init)              \
  EACH(curl_multi_add_handle)         \
  EACH(curl_multi_cleanup)            \
  EACH(curl_multi_info_read)          \
  EACH(curl_multi_init)               \
  EACH(curl_multi_perform)            \
  EACH(curl_multi_poll)               \
  EACH(curl_multi_remove_handle)      \
  EACH(curl_slist_append)             \
  EACH(curl_slist_free_all)

// libcurl's header defines these as macros, to check arguments.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace dlock {

/// The functions of libcurl that dlock uses, by their own names.
struct LibCurl {
#define DLOCK_LIBCURL_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBCURL_FUNCTIONS(DLOCK_LIBCURL_MEMBER)
#undef DLOCK_LIBCURL_MEMBER
};

/// Loads libcurl at the first call, because it loads other libraries, which a run on another engine
/// does not need. Throws Error{host_refused} if it is not installed.
const LibCurl& libcurl();

/// Free what libcurl has allocated. From version 8.11 on both handles are pointers to void.
struct FreeCurl {
  void operator()(CURL* handle) const { libcurl().curl_easy_cleanup(handle); }
};
struct FreeCurlMulti {
  void operator()(CURLM* handle) const { libcurl().curl_multi_cleanup(handle); }
};
struct FreeCurlList {
  void operator()(curl_slist* list) const { libcurl().curl_slist_free_all(list); }
};
using CurlPtr = std::unique_ptr<CURL, FreeCurl>;
using CurlMultiPtr = std::unique_ptr<CURLM, FreeCurlMulti>;
using CurlListPtr = std::unique_ptr<curl_slist, FreeCurlList>;

}  // namespace dlock
