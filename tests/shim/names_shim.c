/* Preloaded into dlock: a resolver that needs no network and no file. A host ANYTHING.N.test, N a
 * number, is 127.0.0.1, and is found out after N milliseconds; a host ANYTHING.N.none.test is found
 * out not to be after as many. Every other is looked up as always. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int resolver(const char*, const char*, const struct addrinfo*, struct addrinfo**);

static int ends_with(const char* text, const char* end) {
  const size_t length = strlen(text), of_end = strlen(end);
  return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

int getaddrinfo(const char* host, const char* service, const struct addrinfo* hints,
                struct addrinfo** found) {
  resolver* const real = (resolver*)dlsym(RTLD_NEXT, "getaddrinfo");
  const int numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (host == NULL || numeric || !ends_with(host, ".test")) {
    return real(host, service, hints, found);
  }
  const char* const dot = strchr(host, '.');
  const long ms = strtol(dot + 1, NULL, 10);
  const struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
  if (ends_with(host, ".none.test")) return EAI_NONAME;
  return real("127.0.0.1", service, hints, found);
}
