#pragma once

#include <stdexcept>
#include <string>

namespace dlock {

/// What dlock itself exits with. The child's own code is passed through and is not listed here.
enum class ExitCode : int {
  ok = 0,
  all_free = 1,      ///< inspect -q
  usage = 64,        ///< command line or environment
  wrong_data = 65,   ///< the key holds data that is not a lock
  unavailable = 69,  ///< server not reached, or reached but unable
  bug = 70,
  host_refused = 71,  ///< this host: no process or memory, directory, disk, stdout
  not_acquired = 75,
  denied = 77,         ///< authentication, ACL, certificate
  configuration = 78,  ///< the configuration file
  lost = 79,           ///< lock lost, or the token no longer holds it
  max_hold = 124,
  not_executable = 126,
  not_found = 127,
};

/// The kinds of trouble that end a command. Each has one exit code; "held by another" and "no
/// longer ours" are answers, not trouble.
enum class ErrorKind {
  usage,
  wrong_data,
  unavailable,
  not_replicated,  ///< the server is there, but too few of its replicas are
  bug,
  host_refused,
  denied,
  configuration,
  interrupted,  ///< the interrupting fd became ready; main never sees it
};

/// What is wrong with a server, as exactly as the code of its reply, the TLS session or the
/// resolver says: `doctor` advises by it.
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
  /// What answered speaks another protocol.
  other_protocol,
  // The server was not asked:
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

/// Whether the server is well, and only has no time or room for this client yet.
constexpr bool says_later(Cause cause) {
  return cause == Cause::busy || cause == Cause::loading || cause == Cause::too_many_clients;
}

/// Whether another password may pass: one that is rotated changes on the server and in a client's
/// file at different moments.
constexpr bool is_refused_login(Cause cause) {
  return cause == Cause::password_missing || cause == Cause::password_wrong;
}

/// The one exception type. `what()` is one line for people, without "dlock: " and already escaped;
/// it never holds a password. Caught in main, and before it by whatever can go on: a loop that asks
/// again, the thread that renews, a vote of several, doctor's checks.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, Cause cause = Cause::none)
      : std::runtime_error(message), kind_(kind), cause_(cause) {}
  ErrorKind kind() const { return kind_; }
  Cause cause() const { return cause_; }
  /// The same error in other words.
  Error reworded(const std::string& message) const { return {kind_, message, cause_}; }
  /// The same error; but where all files of TLS were good before, one that is wrong now (usage) is
  /// being replaced: unavailable, so that a waiter goes on.
  Error after_good_files(bool good_before) const {
    if (!good_before || kind_ != ErrorKind::usage) return *this;
    return {ErrorKind::unavailable, what()};
  }

 private:
  ErrorKind kind_;
  Cause cause_;
};

ExitCode exit_code(ErrorKind kind);

/// Error{usage}: what was asked for cannot be done as it was written.
[[noreturn]] void throw_usage(const std::string& message);

/// Error{unavailable}: who was asked did not answer, or cannot be reached.
[[noreturn]] void throw_unavailable(const std::string& message, Cause cause = Cause::none);

/// Error{interrupted}: the descriptor that cancels a call became readable.
[[noreturn]] void throw_interrupted();

/// Error{host_refused} "doing: strerror", from errno as it stands.
[[noreturn]] void throw_errno(const std::string& doing);

}  // namespace dlock
