#include "output/picture.hpp"

#include <algorithm>
#include <vector>

#include "base/cut.hpp"
#include "output/columns.hpp"
#include "output/log.hpp"

namespace dlock {
namespace {

// ECMA-48 and, for the second screen, what xterm has added to it.
constexpr const char* second_screen = "\x1b[?1049h\x1b[?25l";
constexpr const char* first_screen = "\x1b[?25h\x1b[?1049l";
constexpr const char* to_the_top = "\x1b[H";
/// Before the text: behind a line that fills the screen it would take the last character away.
constexpr const char* clear_line = "\x1b[K";
constexpr const char* clear_below = "\x1b[J";

}  // namespace

std::string Picture::drawing(const std::string& lines, const Screen& screen) {
  if (!in_foreground(fd_)) return "";
  std::vector<std::string> rows;
  for (std::string_view left = lines; !left.empty();) rows.emplace_back(take_until(left, '\n'));
  if (rows.size() > screen.rows) {
    const std::size_t missing = rows.size() - screen.rows + 1;
    rows.resize(screen.rows - 1);
    rows.push_back(screen.fitted("and " + std::to_string(missing) + " more lines", screen.columns));
  }
  std::string text = drawn_ ? "" : second_screen;
  text += to_the_top;
  for (const std::string& row : rows) {
    text += (&row == &rows.front() ? "" : "\r\n") + std::string(clear_line) + row;
  }
  if (rows.size() < screen.rows) text += std::string("\r\n") + clear_below;
  drawn_ = true;
  return text;
}

void Picture::leave() {
  constexpr milliseconds patience{200};
  if (drawn_ && takes_a_line(fd_, later(BootClock::now(), patience))) write_all(fd_, first_screen);
  drawn_ = false;
}

void LiveLine::draw(const std::string& text) {
  if (!in_foreground(fd_) || !takes_a_line(fd_)) return;
  const Screen screen = screen_at(fd_);
  const std::string line = screen.fitted(text, screen.columns - std::min(screen.columns, margin));
  write_all(fd_, wiping() + line);
  width_ = display_width(line);
}

void LiveLine::wipe() {
  if (width_ > 0 && takes_a_line(fd_)) write_all(fd_, wiping());
  width_ = 0;
}

/// A terminal that has become narrower has broken the line.
std::string LiveLine::wiping() const {
  const std::size_t lines_above = width_ == 0 ? 0 : (width_ - 1) / screen_at(fd_).columns;
  const std::string up = lines_above > 0 ? "\x1b[" + std::to_string(lines_above) + "A" : "";
  return up + "\r" + clear_below;
}

}  // namespace dlock
