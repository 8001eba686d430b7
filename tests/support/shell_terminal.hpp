#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "base/fd.hpp"

namespace dlock::test {

/// A quoted script for `sh -c`: prints a line for each INT, exits with 9 on QUIT. It waits in a
/// builtin, as dash loses a signal that arrives during its vfork. The child that it waits for
/// ignores both signals from its fork on.
extern const char* const counts_int;

/// A user at a terminal whose bash has job control: types, and reads the screen. The destructor
/// kills the shell and its foreground job.
class ShellTerminal {
 public:
  /// The shell has the path `program` in $D and `variables` in its environment.
  explicit ShellTerminal(const std::string& program,
                         const std::map<std::string, std::string>& variables = {});
  ~ShellTerminal();
  ShellTerminal(const ShellTerminal&) = delete;
  ShellTerminal& operator=(const ShellTerminal&) = delete;

  void type(const std::string& line) { press(line + "\n"); }
  void press(const std::string& keys);
  void resize(unsigned short columns);

  /// Waits until `text` is on the screen after the text that was found before.
  bool shows(const std::string& text);
  /// Waits until a program of this name leads the foreground process group.
  bool in_front(const std::string& program);
  /// The number that follows the text found last, up to a full stop.
  pid_t number();
  std::size_t count(const std::string& text);
  /// All output of the terminal so far.
  const std::string& screen();

 private:
  void read_screen();

  pid_t shell_ = -1;
  Fd master_;
  std::string screen_;
  std::size_t seen_ = 0;
};

}  // namespace dlock::test
