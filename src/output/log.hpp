#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// Whether `fd` accepts a line by `until` or, without it, now. A full pipe without a reader, or a
/// terminal after ^S, does not. A process that holds a lock or watches a child drops the line then,
/// instead of waiting.
bool takes_a_line(int fd, Deadline until = {});

/// Writes lines to stderr, each at once and with the prefix "dlock: ". `text` is one line and
/// already escaped. With -q the log has only errors and warnings. If stderr is the journal, each
/// line begins with its priority (sd-daemon(3)). If nobody reads stderr for a second, the log drops
/// lines other than errors, because a lock may have been granted meanwhile. Many dlocks write to
/// one log, so an error or a notice contains one of the `keys` or begins with all of them.
/// `server_place` is the place that names the server, for the errors of a server that is not
/// reached or refuses; empty: the command line.
class Log {
 public:
  Log(bool quiet, bool verbose, const std::vector<LockKey>& keys = {},
      std::string server_place = {});

  bool quiet() const { return quiet_; }
  void error(const std::string& text) const;    ///< always
  void error(const Error& error) const;         ///< always
  void warning(const std::string& text) const;  ///< also with -q
  void notice(const std::string& text) const;   ///< unless -q
  void detail(const std::string& text) const;   ///< with -v

 private:
  std::string with_key(const std::string& text) const;

  bool quiet_;
  bool verbose_;
  std::vector<std::string> keys_;  ///< escaped
  std::string server_place_;
};

/// Writes all of `text`; false, with errno, if that fails.
bool write_all(int fd, const std::string& text);

/// Writes a result to stdout; throws Error{host_refused} if that fails.
void print(const std::string& text);

}  // namespace dlock
