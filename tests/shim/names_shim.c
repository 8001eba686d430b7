/* Preloaded into dlock: a resolver that needs no network and no file. A host ANYTHING.N.test, N a
 * number, is 127.0.0.1, and is found out after N milliseconds; a host ANYTHING.N.none.test is found
 * out not to be after as many. The host two.test is 127.0.0.9 and 127.0.0.1, in this order;
 * moved.test is what the file says that NAMES_SHIM_ADDRESS names. Every other is looked up as
 * always. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int resolver(const char*, const char*, const struct addrinfo*, struct addrinfo**);

static int ends_with(const char* text, const char* end) {
  const size_t length = strlen(text), of_end = strlen(end);
  return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

/* The text of the file, without what follows the first blank or newline. */
static const char* moved_to(char* text, int size) {
  const char* const name = getenv("NAMES_SHIM_ADDRESS");
  FILE* const file = name == NULL ? NULL : fopen(name, "re");
  text[0] = 0;
  if (file != NULL && fgets(text, size, file) == NULL) text[0] = 0;
  if (file != NULL) fclose(file);
  text[strcspn(text, " \n")] = 0;
  return text;
}

int getaddrinfo(const char* host, const char* service, const struct addrinfo* hints,
                struct addrinfo** found) {
  resolver* const real = (resolver*)dlsym(RTLD_NEXT, "getaddrinfo");
  const int numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (host == NULL || numeric || !ends_with(host, ".test")) {
    return real(host, service, hints, found);
  }
  if (strcmp(host, "two.test") == 0) {
    const int failed = real("127.0.0.9", service, hints, found);
    return failed ? failed : real("127.0.0.1", service, hints, &(*found)->ai_next);
  }
  char address[64];
  if (strcmp(host, "moved.test") == 0) {
    return real(moved_to(address, sizeof address), service, hints, found);
  }
  const char* const dot = strchr(host, '.');
  const long ms = strtol(dot + 1, NULL, 10);
  const struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
  if (ends_with(host, ".none.test")) return EAI_NONAME;
  return real("127.0.0.1", service, hints, found);
}
