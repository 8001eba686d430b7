#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// What part of a picture says, for those who see colours.
enum class Tone { plain, title, faint, good, busy, bad };

/// The reader of what is written to a descriptor. By default a file or a pipe, for which nothing is
/// cut off: whoever looks for a name there has to find it.
struct Screen {
  bool is_terminal = false;
  /// A terminal that can do more than print lines, and tells whose job is in front: one that does
  /// not control this process (setsid, su) never does, so what is drawn would never be seen there.
  bool moves_cursor = false;
  bool colours = false;
  /// Where the locale of a terminal is not UTF-8, its letters are escaped too: a byte of one may be
  /// a control character there.
  bool utf8 = true;
  std::size_t columns = 80;
  std::size_t rows = 24;

  /// Text of others as it may be shown here.
  std::string shown(std::string_view text) const;
  /// Cut to `most` columns, if this is a terminal.
  std::string fitted(std::string_view text, std::size_t most) const;
  std::string toned(const std::string& text, Tone tone) const;
};

/// By TERM, NO_COLOR (https://no-color.org) and the locale in the environment. A terminal that has
/// no size is taken to have 80 columns and 24 rows.
Screen screen_at(int fd);

/// Whether this process's job is in front on the terminal `fd`: others must not draw there.
bool in_foreground(int fd);

}  // namespace dlock
