#include "support/overlap.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/clock.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "support/files.hpp"

namespace dlock::test {
namespace {

struct Line {
  std::string event;
  std::string key;
  long pid;
  std::int64_t ns;
};

/// Parsed from both ends, as a key may contain blanks.
Line parsed(const std::string& text) {
  const auto key_at = text.find(' ');
  const auto ns_at = text.rfind(' ');
  const auto pid_at = ns_at == std::string::npos ? ns_at : text.rfind(' ', ns_at - 1);
  if (pid_at == std::string::npos || key_at >= pid_at) {
    throw Error(ErrorKind::bug, "no line of an overlap log: " + text);
  }
  constexpr long long most = 9'000'000'000'000'000'000;
  const auto pid = parse_number(text.substr(pid_at + 1, ns_at - pid_at - 1), 1, most);
  const auto ns = parse_number(text.substr(ns_at + 1), 0, most);
  if (!pid || !ns) throw Error(ErrorKind::bug, "no line of an overlap log: " + text);
  return {text.substr(0, key_at), text.substr(key_at + 1, pid_at - key_at - 1), *pid, *ns};
}

void add(std::vector<QuorumHold>& all, const Line& line) {
  if (line.event == "start") {
    all.push_back({line.key, line.pid, line.ns, line.ns, false});
    return;
  }
  const auto mine = std::find_if(all.rbegin(), all.rend(), [&](const QuorumHold& tenure) {
    return tenure.key == line.key && tenure.pid == line.pid && !tenure.ended;
  });
  if (mine == all.rend()) throw Error(ErrorKind::bug, line.event + " without a start: " + line.key);
  mine->end_ns = line.ns;
  mine->ended = line.event == "end";
}

}  // namespace

void stamp(const std::string& log, std::string_view event, std::string_view key) {
  std::ostringstream line;
  line << event << ' ' << key << ' ' << getpid() << ' '
       << BootClock::now().time_since_epoch().count() << '\n';
  const std::string text = line.str();
  const Fd file(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  const bool written =
      file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written) throw_errno("writing " + log);
}

std::string stamp_path() { return DLOCK_STAMP; }

std::vector<QuorumHold> tenures(const std::string& log) {
  std::vector<QuorumHold> all;
  std::istringstream lines(read_file(log));
  std::string text;
  while (std::getline(lines, text)) add(all, parsed(text));
  std::stable_sort(all.begin(), all.end(), [](const QuorumHold& a, const QuorumHold& b) {
    return a.start_ns < b.start_ns;
  });
  return all;
}

std::vector<std::pair<QuorumHold, QuorumHold>> overlaps(const std::string& log) {
  const auto all = tenures(log);
  std::vector<std::pair<QuorumHold, QuorumHold>> pairs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size() && all[j].start_ns < all[i].end_ns; ++j) {
      if (all[i].key == all[j].key) pairs.emplace_back(all[i], all[j]);
    }
  }
  return pairs;
}

std::size_t most_at_once(const std::string& log, std::string_view key) {
  const auto all = tenures(log);
  std::size_t most = 0;
  for (const QuorumHold& at : all) {
    const auto with = std::count_if(all.begin(), all.end(), [&](const QuorumHold& other) {
      const bool begun = other.start_ns <= at.start_ns;
      return other.key == key && begun && (at.start_ns < other.end_ns || &other == &at);
    });
    if (at.key == key) most = std::max(most, static_cast<std::size_t>(with));
  }
  return most;
}

}  // namespace dlock::test
