#include "output/screen.hpp"

#include <locale.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/process.hpp"
#include "base/text.hpp"
#include "output/log.hpp"

namespace dlock {
namespace {

/// The columns of a character by wcwidth(3) in UTF-8, whatever locale the user has; 1 if the C
/// library does not know the character or has no UTF-8 locale.
std::size_t columns_of(std::uint32_t code_point) {
  constexpr std::uint32_t first_not_ascii = 0x80;
  if (code_point < first_not_ascii) return 1;
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = uselocale(utf8);
  const int columns = wcwidth(static_cast<wchar_t>(code_point));
  uselocale(before);
  return columns < 0 ? 1 : static_cast<std::size_t>(columns);
}

struct Extent {
  std::size_t bytes = 0;
  std::size_t columns = 0;
};

/// The longest beginning of `text` that fits into `most` columns, in whole characters.
Extent within(std::string_view text, std::size_t most) {
  Extent fits;
  while (fits.bytes < text.size()) {
    const auto point = first_code_point(text.substr(fits.bytes));
    const std::size_t columns = point ? columns_of(point->value) : 1;
    if (fits.columns + columns > most) break;
    fits.bytes += point ? point->bytes : 1;
    fits.columns += columns;
  }
  return fits;
}

bool is_utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = variable(name);
    if (locale.empty()) continue;
    const auto dot = locale.find('.');
    if (dot == std::string::npos) return false;
    const std::string charset = locale.substr(dot + 1, locale.find('@') - dot - 1);
    return strcasecmp(charset.c_str(), "UTF-8") == 0 || strcasecmp(charset.c_str(), "utf8") == 0;
  }
  return false;
}

/// The codes of ECMA-48, in the order of the tones.
constexpr const char* tone_codes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};

// ECMA-48 defines these sequences, except those for the second screen, which are from xterm.
constexpr const char* second_screen = "\x1b[?1049h\x1b[?25l";
constexpr const char* first_screen = "\x1b[?25h\x1b[?1049l";
constexpr const char* to_the_top = "\x1b[H";
/// drawing() sends it before the text: after a full line it would erase the last character.
constexpr const char* clear_line = "\x1b[K";
constexpr const char* clear_below = "\x1b[J";

}  // namespace

std::size_t display_width(std::string_view text) {
  return within(text, std::string_view::npos).columns;
}

bool is_plain_text(std::string text) {
  const auto harmless = [](char c) { return c == '\n' || c == '\t' || c == '\\'; };
  std::replace_if(text.begin(), text.end(), harmless, ' ');
  return escaped(text) == text;
}

std::string Screen::shown(std::string_view text) const {
  return utf8 ? escaped(text) : ascii_alone(escaped(text));
}

std::string Screen::fitted(std::string_view text, std::size_t most) const {
  if (!is_terminal || display_width(text) <= most) return std::string(text);
  if (most == 0) return "";
  return std::string(text.substr(0, within(text, most - 1).bytes)) + (utf8 ? "\u2026" : "~");
}

std::string Screen::toned(const std::string& text, Tone tone) const {
  if (!colours || tone == Tone::plain || text.empty()) return text;
  return tone_codes[static_cast<std::size_t>(tone)] + text + "\x1b[0m";
}

Screen screen_at(int fd) {
  Screen screen;
  screen.is_terminal = isatty(fd) == 1;
  if (!screen.is_terminal) return screen;
  const std::string term = variable("TERM");
  const bool reads_codes = !term.empty() && term != "dumb";
  screen.moves_cursor = reads_codes && tcgetpgrp(fd) >= 0;
  screen.colours = reads_codes && variable("NO_COLOR").empty();
  screen.utf8 = is_utf8_locale();
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return screen;
  if (size.ws_col > 0) screen.columns = size.ws_col;
  if (size.ws_row > 0) screen.rows = size.ws_row;
  return screen;
}

bool in_foreground(int fd) { return tcgetpgrp(fd) == getpgrp(); }

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

/// Goes up to the line's start first, because a terminal that was made narrower has wrapped it.
std::string LiveLine::wiping() const {
  const std::size_t lines_above = width_ == 0 ? 0 : (width_ - 1) / screen_at(fd_).columns;
  const std::string up = lines_above > 0 ? "\x1b[" + std::to_string(lines_above) + "A" : "";
  return up + "\r" + clear_below;
}

}  // namespace dlock
