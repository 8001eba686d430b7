#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/databases.hpp"
#include "support/files.hpp"
#include "support/patient_start.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

inline nlohmann::json state_at(const std::string& url, const std::string& key) {
  return nlohmann::json::parse(dlock_at(url, {"inspect", "-k", key, "--json"}).out, nullptr, false);
}

/// A run on `a` that is number `count` in the queue at `url`, and has reported its wait, when this
/// returns.
inline Process queued_at(const std::string& url, std::size_t count,
                         std::vector<std::string> words) {
  words.insert(words.begin(), {"run", "-k", "a"});
  const auto is_queued = [&](const Process& waiter) {
    return says_that_it_waits(waiter) && waiters(url) == count;
  };
  return patient_start([&] { return start_dlock(words, at(url)); }, is_queued,
                       "it did not queue up");
}

/// A run on `a` whose command has started, and which ends on request.
class CommandInside {
 public:
  explicit CommandInside(const std::string& url, const std::vector<std::string>& options = {})
      : CommandInside(at(url), options) {}
  CommandInside(const ProcessOptions& where, const std::vector<std::string>& options)
      : process(patient_start([&] { return start_dlock(arguments(options), where); },
                              [&] { return std::filesystem::exists(dir_ / "in"); },
                              "the command did not begin")) {}
  void end() { write_file(dir_ / "end", ""); }

 private:
  TempDir dir_;

  std::vector<std::string> arguments(const std::vector<std::string>& options) const {
    std::vector<std::string> all{"run", "-k", "a"};
    all.insert(all.end(), options.begin(), options.end());
    const std::string script =
        "touch '" + (dir_ / "in") + "'; until [ -e '" + (dir_ / "end") + "' ]; do sleep 0.05; done";
    all.insert(all.end(), {"--", "sh", "-c", script});
    return all;
  }

 public:
  Process process;
};

}  // namespace dlock::test
