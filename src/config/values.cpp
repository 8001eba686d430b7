#include "config/values.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/duration.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"
#include "config/redaction.hpp"

namespace dlock {
namespace {

struct Unit {
  std::string_view name;
  long long ms;
};

/// Largest first, because `1h30m` names each unit at most once and in this order.
constexpr Unit units[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

/// Takes the characters of `set` from the front of `text`.
std::string_view take_any(std::string_view& text, std::string_view set) {
  const auto taken = text.substr(0, text.find_first_not_of(set));
  text.remove_prefix(taken.size());
  return taken;
}

/// Reads a number with at most nine decimal places. Returns its whole part, and its fraction in
/// `billionths`.
std::optional<long long> take_amount(std::string_view& text, long long& billionths) {
  constexpr std::string_view digits = "0123456789";
  constexpr std::size_t most_digits = 11, most_places = 9;
  const std::string whole(take_any(text, digits));
  std::string fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_any(text, digits);
    if (fraction.empty()) return std::nullopt;
  }
  if (whole.size() + fraction.size() == 0 || whole.size() > most_digits ||
      fraction.size() > most_places) {
    return std::nullopt;
  }
  fraction.resize(most_places, '0');
  billionths = std::stoll(fraction);
  return whole.empty() ? 0 : std::stoll(whole);
}

/// Reads one number with its unit and returns milliseconds, rounded up. `ceiling_ms` is the last
/// unit seen, and the next must be smaller. A number without a unit is seconds, and must be the
/// whole text.
std::optional<long long> take_part(std::string_view& text, long long& ceiling_ms) {
  const bool first = ceiling_ms == 0;
  long long billionths = 0;
  const auto whole = take_amount(text, billionths);
  if (!whole) return std::nullopt;
  auto name = take_any(text, "dhms");
  if (name.empty() && text.empty() && first) name = "s";
  const auto* unit = std::find_if(std::begin(units), std::end(units),
                                  [&](const Unit& each) { return each.name == name; });
  if (unit == std::end(units) || (!first && unit->ms >= ceiling_ms)) return std::nullopt;
  ceiling_ms = unit->ms;
  if (*whole > longest_duration.count() / unit->ms + 1) return std::nullopt;
  constexpr long long billion = 1'000'000'000;
  const long long part = (billionths * unit->ms + billion - 1) / billion;
  return *whole * unit->ms + part;
}

/// A duration in the form of the command line: `100ms`, `24h`.
std::string typed(milliseconds span) {
  const auto ms = span.count();
  if (ms % 86'400'000 == 0 && ms > 86'400'000) return std::to_string(ms / 86'400'000) + "d";
  if (ms % 3'600'000 == 0 && ms > 0) return std::to_string(ms / 3'600'000) + "h";
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + "s" : std::to_string(ms) + "ms";
}

void refuse_fault(const SourcedValue& given, const std::optional<std::string>& fault) {
  if (fault) given.refuse(in_quotes(given.text) + " " + *fault);
}

bool has_control_characters(std::string text) {
  std::erase(text, '\\');
  return escaped(text) != text;
}

std::optional<int> signal_number(const std::string& text) {
  if (const auto number = parse_number(text, 1, SIGRTMAX)) {
    const int signal = static_cast<int>(*number);
    const bool known = sigabbrev_np(signal) != nullptr || signal >= SIGRTMIN;
    return known ? std::optional(signal) : std::nullopt;
  }
  const std::string name =
      text.size() > 3 && strncasecmp(text.c_str(), "SIG", 3) == 0 ? text.substr(3) : text;
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* each = sigabbrev_np(signal);
    if (each != nullptr && strcasecmp(each, name.c_str()) == 0) return signal;
  }
  return std::nullopt;
}

/// The first line of a text that other users will see, cut to the length that they see.
std::string line_of(const SourcedValue& given, const std::string& what) {
  constexpr std::size_t longest_line = 200;
  if (!is_utf8(given.text)) given.refuse(what + " is not UTF-8");
  std::string line = given.text.substr(0, given.text.find_first_of(std::string_view("\r\n\0", 3)));
  if (line.size() > longest_line) line.resize(longest_line);
  while (!is_utf8(line)) line.pop_back();
  return line;
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  long long total = 0;
  long long ceiling_ms = 0;
  while (!text.empty()) {
    const auto part = take_part(text, ceiling_ms);
    if (!part) return std::nullopt;
    total += *part;
  }
  if (total > longest_duration.count()) return std::nullopt;
  return milliseconds(total);
}

milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most) {
  const auto span = parse_duration(given.text);
  if (!span) {
    given.refuse("invalid duration " + in_quotes(given.text) +
                 " (examples: 10, 500ms, 1h30m; at most 365d)");
  }
  if (*span < least || *span > most) {
    given.refuse(in_quotes(given.text) + " is not between " + typed(least) + " and " + typed(most));
  }
  return *span;
}

long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high) {
  const auto number = parse_number(given.text, low, high);
  if (!number) {
    given.refuse("invalid " + what + " " + in_quotes(given.text) + ": a number from " +
                 std::to_string(low) + " to " + std::to_string(high) + " is expected");
  }
  return *number;
}

int signal_from(const SourcedValue& given) {
  const auto number = signal_number(given.text);
  if (!number)
    given.refuse("invalid signal " + in_quotes(given.text) + " (examples: TERM, SIGTERM, 15)");
  return *number;
}

int status_fd_from(const SourcedValue& given) {
  const int fd = static_cast<int>(number_from(given, "file descriptor", 0, 1'000'000));
  const int mode = fcntl(fd, F_GETFL);
  if (mode < 0)
    given.refuse(given.text + " is not open: redirect it after the command, for example 3>FILE");
  if ((mode & O_ACCMODE) == O_RDONLY) given.refuse(given.text + " is not open for writing");
  return fd;
}

const SourcedValue& absolute_in_file(const SourcedValue& given) {
  const bool in_file = given.trouble == ErrorKind::configuration;
  if (in_file && !given.text.starts_with('/')) given.refuse("is not an absolute path");
  return given;
}

std::string readable_path_from(const SourcedValue& given) {
  const std::string path = absolute_in_file(given).text;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) given.refuse("cannot read " + in_quotes(path) + ": " + std::strerror(errno));
  // Each new connection reads it again, in a process whose working directory may be "/".
  std::error_code fault;
  const auto whole = std::filesystem::absolute(path, fault);
  if (fault) given.refuse("cannot tell where " + in_quotes(path) + " is: " + fault.message());
  return whole;
}

std::string host_name_from(const SourcedValue& given) {
  constexpr std::size_t longest_name = 253;
  const bool plain = std::all_of(given.text.begin(), given.text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           c == ':';
  });
  if (!plain || given.text.size() > longest_name) {
    given.refuse("invalid host name or address " + in_quotes(given.text));
  }
  return given.text;
}

LockKey key_from(const SourcedValue& given) {
  refuse_fault(given, key_fault(given.text));
  return LockKey{given.text};
}

Owner owner_from(const SourcedValue& given) {
  refuse_fault(given, owner_id_fault(given.text));
  return Owner{given.text};
}

Owner owner_path_from(const SourcedValue& given) {
  refuse_fault(given, owner_path_fault(given.text));
  return Owner{given.text};
}

ArrivalId arrival_id_from(const SourcedValue& given) {
  refuse_fault(given, owner_id_fault(given.text));
  return ArrivalId{given.text};
}

Token token_from(const SourcedValue& given) {
  // A token allows a release, so not even a damaged one belongs in a log.
  if (const auto fault = token_fault(given.text)) given.refuse("the token " + *fault);
  return Token{given.text};
}

std::function<std::string(const SourcedValue&)> label_reader(std::vector<std::string>& warnings) {
  return [&warnings](const SourcedValue& given) {
    std::string line = line_of(given, "the label");
    if (line != given.text) {
      warnings.push_back(given.place +
                         ": the label is shortened to its first line, of at most 200 "
                         "bytes");
    }
    return line;
  };
}

std::string reason_from(const SourcedValue& given) {
  std::string line = line_of(given, "the reason");
  if (line != given.text)
    given.refuse("the reason is more than one line, or longer than 200 bytes");
  return line;
}

std::string prefix_from(const SourcedValue& given) {
  constexpr std::size_t longest_prefix = 100;
  if (given.text.size() > longest_prefix) given.refuse("the prefix is longer than 100 bytes");
  // Braces would decide which part of the key Redis Cluster hashes to a slot.
  if (given.text.find_first_of("{}") != std::string::npos) given.refuse("the prefix holds { or }");
  if (!is_utf8(given.text)) given.refuse("the prefix is not UTF-8");
  if (has_control_characters(given.text)) given.refuse("the prefix holds control characters");
  return given.text;
}

OnLost on_lost_from(const SourcedValue& given) {
  if (given.text == "stop") return OnLost::stop;
  if (given.text == "ignore") return OnLost::ignore;
  given.refuse(in_quotes(given.text) + " is neither stop nor ignore");
}

}  // namespace dlock
