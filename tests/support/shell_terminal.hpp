#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "base/fd.hpp"

namespace dlock::test {

/// For `sh -c`, in quotes: says so for each INT, ends with 9 on QUIT. It waits in a builtin, for
/// dash forgets a signal that comes in the middle of its vfork; and what it waits for ignores both
/// from its fork on.
extern const char* const counts_int;

/// Somebody at a terminal, with a bash that has job control: types, and reads the screen. All that
/// was started there is gone with it.
class ShellTerminal {
 public:
  /// The shell knows `program` as $D; `variables` are set in its environment.
  explicit ShellTerminal(const std::string& program,
                         const std::map<std::string, std::string>& variables = {});
  ~ShellTerminal();
  ShellTerminal(const ShellTerminal&) = delete;
  ShellTerminal& operator=(const ShellTerminal&) = delete;

  void type(const std::string& line) { press(line + "\n"); }
  void press(const std::string& keys);
  void resize(unsigned short columns);

  /// Waits until `text` is on the screen after what was shown before.
  bool shows(const std::string& text);
  /// Waits until the foreground process group is led by a program of this name.
  bool in_front(const std::string& program);
  /// The number that follows what was shown last, and ends with a full stop.
  pid_t number();
  std::size_t count(const std::string& text);
  /// Everything that was ever written there.
  const std::string& screen();

 private:
  void read_screen();

  pid_t shell_ = -1;
  Fd master_;
  std::string screen_;
  std::size_t seen_ = 0;
};

}  // namespace dlock::test
