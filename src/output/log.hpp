#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "lock/claim.hpp"

namespace dlock {

/// Whether `fd` takes a line by `until`, at once unless given; where it does not (a full pipe that
/// nobody reads, ^S), a process that holds a lock or watches a child says nothing rather than wait.
bool takes_a_line(int fd, Deadline until = {});

/// Lines on stderr, each with "dlock: " in front and written at once. `text` is one line and
/// already escaped. With -q there are errors and warnings alone. Where stderr is the journal's,
/// each line begins with its priority, as sd-daemon(3) has it. What is not an error is left out
/// where nobody reads stderr for a second: a lock may have been granted meanwhile. Many dlocks
/// write to one log: an error or a notice names one of the `keys` or begins with all of them.
class Log {
 public:
  Log(bool quiet, bool verbose, const std::vector<LockKey>& keys = {});

  bool quiet() const { return quiet_; }
  void error(const std::string& text) const;    ///< always
  void warning(const std::string& text) const;  ///< also with -q
  void notice(const std::string& text) const;   ///< unless -q
  void detail(const std::string& text) const;   ///< with -v

 private:
  std::string with_key(const std::string& text) const;

  bool quiet_;
  bool verbose_;
  std::vector<std::string> keys_;  ///< escaped
};

/// Whether `journal_stream`, the variable that systemd sets, names what `fd` is.
bool is_journal(int fd, const char* journal_stream);

/// Writes all of `text`; false, with errno, if that cannot be done.
bool write_all(int fd, const std::string& text);

/// A result, on stdout; throws Error{host_refused} if it cannot be written.
void print(const std::string& text);

}  // namespace dlock
