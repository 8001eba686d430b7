#include "output/screen.hpp"

#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/escape.hpp"
#include "output/columns.hpp"

namespace dlock {
namespace {

std::string variable(const char* name) {
  // Nothing in dlock changes its own environment.
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
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

const char* code_of(Tone tone) {
  switch (tone) {
    case Tone::title:
      return "\x1b[1m";
    case Tone::faint:
      return "\x1b[2m";
    case Tone::good:
      return "\x1b[32m";
    case Tone::busy:
      return "\x1b[33m";
    case Tone::bad:
      return "\x1b[31m";
    case Tone::plain:
      break;
  }
  return "";
}

}  // namespace

std::string Screen::shown(std::string_view text) const {
  return utf8 ? escaped(text) : ascii_alone(escaped(text));
}

std::string Screen::fitted(std::string_view text, std::size_t most) const {
  return is_terminal ? cut_to(text, most, utf8 ? "\u2026" : "~") : std::string(text);
}

std::string Screen::toned(const std::string& text, Tone tone) const {
  if (!colours || tone == Tone::plain || text.empty()) return text;
  return code_of(tone) + text + "\x1b[0m";
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

}  // namespace dlock
