#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "output/diagnosis.hpp"

namespace dlock {
namespace {

Diagnosis ill() {
  return {"redis://db1:6379",
          "best effort",
          {{Level::ok, "reach", "connected in 1 ms", ""},
           {Level::error, "eviction", "allkeys-lru throws locks out", "noeviction"},
           {Level::warning, "uptime", "started 2s ago", "wait"}}};
}

Screen wide_terminal(std::size_t columns) {
  Screen screen;
  screen.is_terminal = true;
  screen.columns = columns;
  return screen;
}

TEST_CASE("a diagnosis is a line a check, with what to do behind an arrow") {
  CHECK(diagnosis_text(ill(), Screen{}) ==
        "redis://db1:6379\n"
        "ok       reach     connected in 1 ms\n"
        "error    eviction  allkeys-lru throws locks out -> noeviction\n"
        "warning  uptime    started 2s ago -> wait\n"
        "error    verdict   not fit to hold locks: 1 error, 1 warning\n");
  Diagnosis well = ill();
  well.findings.erase(well.findings.begin() + 1);
  CHECK(diagnosis_text(well, Screen{})
            .ends_with("\nwarning  verdict  fit to hold locks, 1 warning\n"));
  well.findings.pop_back();
  CHECK(diagnosis_text(well, Screen{}).ends_with("\nok       verdict  fit to hold locks\n"));
}

TEST_CASE("on a terminal a long line goes on below its text") {
  CHECK(diagnosis_text(ill(), wide_terminal(48))
            .find("\nerror    eviction  allkeys-lru throws locks out\n"
                  "                   -> noeviction\n") != std::string::npos);
  CHECK(diagnosis_text(ill(), wide_terminal(10)) == diagnosis_text(ill(), Screen{}));
  Diagnosis long_word = ill();
  long_word.findings[0].text = std::string(100, 'x');
  CHECK(diagnosis_text(long_word, wide_terminal(60)).find(std::string(100, 'x')) !=
        std::string::npos);
}

TEST_CASE("where there are colours the level of a check has one, and the columns stay") {
  Screen coloured = wide_terminal(100);
  coloured.colours = true;
  const std::string text = diagnosis_text(ill(), coloured);
  CHECK(text.find("\n\x1b[32mok\x1b[0m       reach     connected") != std::string::npos);
  CHECK(text.find("\n\x1b[31merror\x1b[0m    eviction  ") != std::string::npos);
  CHECK(text.find("\n\x1b[33mwarning\x1b[0m  uptime    ") != std::string::npos);
}

TEST_CASE("a diagnosis as JSON is one line that says the same") {
  const std::string text = diagnosis_json(ill());
  CHECK(text.find('\n') == text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["server"] == "redis://db1:6379");
  CHECK(json["label"] == "best effort");
  CHECK(json["verdict"] == "error");
  REQUIRE(json["checks"].size() == 3);
  CHECK(json["checks"][1]["check"] == "eviction");
  CHECK(json["checks"][1]["level"] == "error");
  CHECK(json["checks"][1]["text"] == "allkeys-lru throws locks out");
  CHECK(json["checks"][1]["advice"] == "noeviction");
  CHECK(json["checks"][0]["advice"] == "");
}

}  // namespace
}  // namespace dlock
