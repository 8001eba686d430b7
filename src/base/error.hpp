#pragma once

#include <stdexcept>
#include <string>

namespace dlock {

/// The exit codes of dlock itself. dlock also passes on the exit code of its command; those codes
/// are not listed.
enum class ExitCode : int {
  ok = 0,
  all_free = 1,      ///< inspect -q: no key is held
  usage = 64,        ///< command line or environment
  wrong_data = 65,   ///< the key holds data that is not a lock
  unavailable = 69,  ///< server not reached, or unable to carry out the request
  bug = 70,
  host_refused = 71,  ///< this host: process, memory, directory, disk, stdout
  not_acquired = 75,
  denied = 77,         ///< authentication, ACL, certificate
  configuration = 78,  ///< the configuration file
  lost = 79,           ///< lock lost, or the token no longer holds it
  max_hold = 124,
  not_executable = 126,
  not_found = 127,
};

/// The kinds of error that end a command; each has one exit code. "Held by another" and "no longer
/// ours" are answers, not errors.
enum class ErrorKind {
  usage,
  wrong_data,
  unavailable,
  not_replicated,  ///< the server is reachable, but too few of its replicas are
  bug,
  host_refused,
  denied,
  configuration,
  interrupted,  ///< `cancel_fd` became readable; main never sees it
};

/// The fault of a server, as far as the server's reply, the TLS session or the resolver tells it;
/// `doctor` chooses its advice by the cause.
enum class Cause {
  none,
  // The server replied with an error:
  password_missing,
  password_wrong,
  password_unneeded,
  protected_mode,
  acl,
  no_such_database,
  too_many_clients,
  out_of_memory,
  cannot_save,
  too_few_replicas,
  read_only,
  loading,
  busy,
  not_replicated,
  other_reply,
  /// The other side speaks another protocol.
  other_protocol,
  // The server received no request:
  not_looked_up,
  no_tls,
  old_tls,
  tls_interrupted,
  tls_failed,
  certificate,
  certificate_expired,
};

/// Whether the server was reached and replied with an error.
constexpr bool is_reply(Cause cause) { return cause > Cause::none && cause <= Cause::other_reply; }

/// Whether the server works, but has no time or no room for this client yet.
constexpr bool says_later(Cause cause) {
  return cause == Cause::busy || cause == Cause::loading || cause == Cause::too_many_clients;
}

/// Whether the server refused the login because of its password. A later login may succeed: a
/// rotated password changes on the server and in a client's file at different moments.
constexpr bool is_refused_login(Cause cause) {
  return cause == Cause::password_missing || cause == Cause::password_wrong;
}

/// A failure that a function returns instead of throwing it as an Error.
struct Fault {
  std::string text{};  ///< for people; empty: nothing is wrong
  Cause cause = Cause::none;

  bool empty() const { return text.empty(); }
};

/// The only exception type of dlock. `what()` is one line for people, already escaped, without
/// "dlock: " and never with a password. main catches it, and so does all code that can continue:
/// retry loops, the renew thread, a vote among several servers, doctor's checks.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, Cause cause = Cause::none)
      : std::runtime_error(message), kind_(kind), cause_(cause) {}
  ErrorKind kind() const { return kind_; }
  Cause cause() const { return cause_; }
  /// The same error in other words.
  Error reworded(const std::string& message) const { return {kind_, message, cause_}; }
  /// Returns the same error, except that an unusable TLS file (usage) becomes unavailable if all
  /// files were good before: the file is being replaced, so a waiter retries.
  Error after_good_files(bool good_before) const {
    if (!good_before || kind_ != ErrorKind::usage) return *this;
    return {ErrorKind::unavailable, what()};
  }

 private:
  ErrorKind kind_;
  Cause cause_;
};

ExitCode exit_code(ErrorKind kind);

/// Throws Error{usage}: the request cannot be carried out as it was written.
[[noreturn]] void throw_usage(const std::string& message);

/// Throws Error{unavailable}: the server cannot be reached or did not answer.
[[noreturn]] void throw_unavailable(const std::string& message, Cause cause = Cause::none);

/// Throws Error{interrupted}: the fd that cancels a call became readable.
[[noreturn]] void throw_interrupted();

/// Throws Error{host_refused} "doing: strerror(errno)".
[[noreturn]] void throw_errno(const std::string& doing);

}  // namespace dlock
