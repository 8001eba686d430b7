#include <doctest/doctest.h>

#include <algorithm>

#include "config/option_table.hpp"
#include "support/files.hpp"
#include "unit/config_support.hpp"

namespace dlock {
namespace {

/// The words of the first command in a shell line, without quotes; variables stay.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  char quote = 0;
  for (const char c : line) {
    if (quote == 0 && std::string_view(")>;|&").find(c) != std::string_view::npos) break;
    if (quote == 0 ? c == '\'' || c == '"' : c == quote) {
      quote = quote == 0 ? c : '\0';
    } else if (quote == 0 && c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
}

/// The arguments of every dlock call in the examples of a help text.
std::vector<std::vector<std::string>> examples_of(const std::string& text) {
  std::vector<std::vector<std::string>> examples;
  bool inside = false;
  for (const std::string& line : test::lines_of(text)) {
    inside = line == "Examples:" || (inside && line.starts_with("  "));
    const auto from = line.find("dlock ");
    if (!inside || from == std::string::npos) continue;
    examples.push_back(words_of(line.substr(from + 6)));
    std::replace(examples.back().begin(), examples.back().end(), std::string("$T"),
                 std::string("token"));
    std::replace(examples.back().begin(), examples.back().end(), std::string("$$"),
                 std::string("42"));
    if (line.find("DLOCK_TOKEN=$T") != std::string::npos) {
      examples.back().insert(examples.back().end(), {"--token", "token"});
    }
  }
  return examples;
}

bool fits(const std::string& text, std::size_t rows) {
  const auto lines = test::lines_of(text);
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
    CHECK_FALSE(line.ends_with(' '));
  }
  return lines.size() <= rows && text.ends_with('\n');
}

TEST_CASE("the help fits on a screen") {
  CHECK(fits(help_text(std::nullopt), 24));
  for (const Subcommand& each : subcommands()) CHECK(fits(help_text(each.command), 48));
}

TEST_CASE("the help of dlock names every command") {
  for (const Subcommand& each : subcommands()) {
    CHECK(help_text(std::nullopt).find(std::string("\n  ") + each.name + " ") != std::string::npos);
  }
}

TEST_CASE("the help of a command has all of its flags, the others' none") {
  for (const Subcommand& each : subcommands()) {
    const std::string text = help_text(each.command);
    CHECK(text.starts_with(std::string("Usage: dlock ") + each.name + " "));
    for (const Option& option : options()) {
      if (option.commands == 0 || *option.name == '\0') continue;
      CAPTURE(option.shown());
      const bool is_rare = option.has(rare);
      const std::string flag = option.shown() + " " + (is_rare ? option.value.name : "");
      std::size_t listed = 0;
      for (const std::string& line : test::lines_of(text)) {
        const auto at = line.find(flag);
        const bool found = is_rare ? at != std::string::npos : line.starts_with("  ") && at == 6;
        if (found) ++listed;
      }
      const bool belongs =
          std::any_of(options().begin(), options().end(), [&](const Option& other) {
            return other.shown() == option.shown() && other.belongs_to(each.command);
          });
      CHECK(listed == (belongs ? 1 : 0));
    }
    CHECK(text.find("Exit codes:") != std::string::npos);
    CHECK(text.find("DLOCK_SERVER") != std::string::npos);
  }
  CHECK(help_text(Command::renew).find("DLOCK_TTL") == std::string::npos);
  CHECK(help_text(Command::inspect).find("DLOCK_OWNER") == std::string::npos);
}

TEST_CASE("every example of the help is taken by the command line it shows") {
  const test::Surroundings place;
  std::vector<std::string> texts = {help_text(std::nullopt)};
  for (const Subcommand& each : subcommands()) texts.push_back(help_text(each.command));
  for (const std::string& text : texts) {
    const auto examples = examples_of(text);
    CHECK(examples.size() >= 3);
    for (const auto& arguments : examples) {
      const auto error = test::error_of([&] { place.resolve(arguments); });
      CHECK((error ? error->second : "") == "");
    }
  }
}

TEST_CASE("the version stands in a line of its own, before commit and libraries") {
  const auto lines = test::lines_of(version_text("0123456789ab+"));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "dlock " DLOCK_VERSION);
  CHECK(lines[1] == "commit: 0123456789ab+");
  CHECK(lines[2].starts_with("libraries inside: hiredis "));
  CHECK(lines[3].starts_with("libraries loaded when needed: "));
  CHECK(test::lines_of(version_text("")).size() == 3);
}

}  // namespace
}  // namespace dlock
