#include "cli/doctor_report.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace dlock::test {

std::string Report::line(const std::string& check, const std::string& part) const {
  std::istringstream lines(result.out);
  for (std::string each; std::getline(lines, each);) {
    std::istringstream words(each);
    std::string level;
    std::string name;
    words >> level >> name;
    if (name == check && holds(each, part)) return each;
  }
  return "";
}

bool Report::says(const std::string& check, const std::string& level,
                  const std::string& part) const {
  CAPTURE(result.out);
  CAPTURE(result.err);
  CAPTURE(check);
  CAPTURE(part);
  const bool as_expected = line(check, part).starts_with(level + " ");
  CHECK(as_expected);
  return as_expected;
}

Report doctor(const std::string& url, const Words& flags, const std::string& password) {
  Words words{"doctor", "--server", url};
  words.insert(words.end(), flags.begin(), flags.end());
  ProcessOptions options;
  if (!password.empty()) options.env["DLOCK_PASSWORD"] = password;
  Report report;
  // The doctor reports one stall of a busy machine as a slow server, but a machine does not stall
  // every time.
  in_one_of(5, [&] {
    report = {dlock(words, options)};
    return !holds(report.result.out, ": slow for a ttl of ") &&
           !holds(report.result.out, "no answer in time");
  });
  return report;
}

RedisOptions configured(std::vector<std::string> config) { return {.config = std::move(config)}; }

RedisOptions keeping_all() { return configured({"appendonly yes", "appendfsync always"}); }

void obey(const RedisServer& server, const std::string& line) {
  std::istringstream text(line);
  Words words;
  for (std::string each; text >> each;) words.push_back(each);
  REQUIRE(server.command(words).text == "OK");
}

}  // namespace dlock::test
