#include "doctor/advice.hpp"

#include <array>

namespace dlock {

std::string advice_on(const std::string& trouble, const char* otherwise) {
  struct Case {
    const char* part;
    const char* advice;
  };
  constexpr std::array cases{
      Case{"wants a password", "give one; dlock doctor --acl prints a user to make"},
      Case{"is wrong", "check user and password; dlock doctor --acl prints a user to make"},
      Case{"but one is set", "unset it, or set requirepass there"},
      Case{"needs a new one", "renew its certificate"},
      Case{"new enough", "let it speak TLS 1.2 or newer"},
      Case{"TLS handshake", "is it overloaded, or no server of TLS?"},
      Case{"certificate", "make --tls-ca, --tls-cert or --tls-server-name fit"},
      Case{"TLS", "make the scheme of --server fit it"},
      Case{"look up", "mend the name in --server, or DNS"},
      Case{"database", "another number in --server, or none"},
      Case{"protected mode", "give it a password, then protected-mode no"},
      Case{"too many clients", "raise maxclients"},
      Case{"out of memory", "raise maxmemory, or make room"},
      Case{"cannot save", "mend its disk: see its log and INFO persistence"},
      Case{"too few replicas", "bring the replicas back: see replication"},
      Case{"busy", "wait, or end that script: SCRIPT KILL"},
      Case{"loading", "wait until it has loaded"},
      Case{"replicas have the lock", "more replicas, or a smaller --replicas"},
      Case{"NOPERM", "grant what is missing; dlock doctor --acl prints all"},
      Case{"ACL", "grant what is missing; dlock doctor --acl prints all"},
  };
  for (const Case& each : cases) {
    if (trouble.find(each.part) != std::string::npos) return each.advice;
  }
  return otherwise;
}

}  // namespace dlock
