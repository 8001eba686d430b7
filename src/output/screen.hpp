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

/// What is drawn again and again in the same place of a terminal: on its second screen, as an
/// editor does, for there a new size leaves nothing behind. Draws only while its job is in front.
/// The end of it gives the first screen back.
class Picture {
 public:
  explicit Picture(int fd) : fd_(fd) {}
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  ~Picture() { leave(); }

  /// The text that draws `lines` in place of the lines before; each is as wide as `screen` at most.
  /// Lines below the screen are cut. Empty while the job is not in front.
  std::string drawing(const std::string& lines, const Screen& screen);
  /// Until the next drawing. A terminal that takes nothing (^S) is left as it is.
  void leave();
  bool drawn() const { return drawn_; }

 private:
  int fd_;
  bool drawn_ = false;
};

/// One line on a terminal that comes and goes, below what was written before, of which nothing
/// stays. Draws only while its job is in front.
class LiveLine {
 public:
  explicit LiveLine(int fd) : fd_(fd) {}
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { wipe(); }

  /// Columns it leaves free: what the terminal says of ^C stands behind it, and must not begin a
  /// line of its own.
  static constexpr std::size_t margin = 3;

  /// `text` is escaped; cut to what fits.
  void draw(const std::string& text);
  void wipe();

 private:
  std::string wiping() const;

  int fd_;
  std::size_t width_ = 0;  ///< of what stands there now
};

}  // namespace dlock
