#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlock {

/// How many columns of a terminal the escaped `text` takes: two for each wide character (CJK,
/// emoji), none for a character that joins the one before it.
std::size_t display_width(std::string_view text);

/// Whether `text` is UTF-8 and, apart from tabs and line feeds, safe on a terminal.
bool is_plain_text(std::string text);

/// The meaning of a part of the output, shown as a colour.
enum class Tone { plain, title, faint, good, busy, bad };

/// The properties of an output descriptor. The default is a file or a pipe, where text is never
/// shortened, so that a search finds each name.
struct Screen {
  bool is_terminal = false;
  /// True for a terminal that can move the cursor and says which job is in the foreground. A
  /// terminal that does not control this process (setsid, su) never says so, and drawings would
  /// never appear there.
  bool moves_cursor = false;
  bool colours = false;
  /// If the locale of a terminal is not UTF-8, shown() also escapes letters outside ASCII, because
  /// their bytes may be control characters there.
  bool utf8 = true;
  std::size_t columns = 80;
  std::size_t rows = 24;

  /// Text of other clients, escaped so that it cannot control this terminal.
  std::string shown(std::string_view text) const;
  /// The text, cut to `most` columns if this is a terminal; a mark then replaces the rest.
  std::string fitted(std::string_view text, std::size_t most) const;
  std::string toned(const std::string& text, Tone tone) const;
};

/// Determines the properties from TERM, NO_COLOR (https://no-color.org) and the locale in the
/// environment. A terminal without a size counts as 80 columns and 24 rows.
Screen screen_at(int fd);

/// Whether this process's job is in the foreground of the terminal `fd`; background jobs must not
/// draw there.
bool in_foreground(int fd);

/// A drawing that is repeated in the same place of a terminal. It uses the second screen, as an
/// editor does, because resizing the terminal leaves no remains of old drawings there. It draws
/// only while its job is in the foreground. Its destructor restores the first screen.
class Picture {
 public:
  explicit Picture(int fd) : fd_(fd) {}
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  ~Picture() { leave(); }

  /// The text that draws `lines` over the previous lines; each is at most as wide as `screen`.
  /// Lines below the screen are cut off. Empty while the job is not in the foreground.
  std::string drawing(const std::string& lines, const Screen& screen);
  /// Restores the first screen until the next drawing. A terminal that accepts nothing (^S) stays
  /// as it is.
  void leave();

 private:
  int fd_;
  bool drawn_ = false;
};

/// One temporary line on a terminal, below the earlier output. The destructor wipes it. draw() does
/// nothing in a background job.
class LiveLine {
 public:
  explicit LiveLine(int fd) : fd_(fd) {}
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { wipe(); }

  /// How many columns stay free: the terminal's echo of ^C follows the line, and must not wrap.
  static constexpr std::size_t margin = 3;

  /// Draws the escaped `text`, cut to fit.
  void draw(const std::string& text);
  void wipe();

 private:
  std::string wiping() const;

  int fd_;
  std::size_t width_ = 0;  ///< the width of the line that is drawn now
};

}  // namespace dlock
