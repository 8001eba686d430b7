#include "base/moment.hpp"

#include <cstring>
#include <ctime>

namespace dlock {

std::optional<WallTime> parse_moment(const std::string& text, WallTime now) {
  const std::time_t second =
      std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()).count();
  std::tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M", &parts);
  const bool has_date = rest != nullptr;
  if (!has_date) {
    tzset();
    localtime_r(&second, &parts);
    rest = strptime(text.c_str(), "%H:%M", &parts);
    parts.tm_sec = 0;
  }
  if (rest != nullptr && *rest == ':') rest = strptime(rest, ":%S", &parts);
  if (rest != nullptr && has_date && *rest == '.') rest += 1 + std::strspn(rest + 1, "0123456789");
  const bool is_local = rest != nullptr && *rest == '\0';
  if (rest != nullptr && has_date && !is_local) rest = strptime(rest, "%z", &parts);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  parts.tm_isdst = -1;
  std::tm normal = parts;
  std::time_t moment = is_local ? std::mktime(&normal) : timegm(&normal) - parts.tm_gmtoff;
  // The C library takes February 30 for a day in March.
  if (normal.tm_mday != parts.tm_mday) return std::nullopt;
  if (!has_date && moment <= second) {
    ++parts.tm_mday;
    moment = std::mktime(&parts);
  }
  return WallTime(std::chrono::seconds(moment));
}

}  // namespace dlock
