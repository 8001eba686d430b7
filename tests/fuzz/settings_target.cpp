// Reads what users configure: URLs, command lines, variables and configuration files, with a
// password that no message may show.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "config/command_line.hpp"
#include "config/server_url.hpp"
#include "config/settings.hpp"
#include "fuzz/fuzz.hpp"

namespace dlock::fuzz {
namespace {

constexpr char secret[] = "s3cr3tW0rd";

/// Replaces each `@@` of the input by the password; empty if the input knows the password already.
std::string with_secret(std::string_view text) {
  std::string whole(text);
  if (whole.find(secret) != std::string::npos) return {};
  for (auto at = whole.find("@@"); at != std::string::npos; at = whole.find("@@", at)) {
    whole.replace(at, 2, std::string(secret) + "@");
    at += sizeof secret;
  }
  return whole;
}

template <typename Body>
void keep_secret(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    check_message(error);
    promise(std::string(error.what()).find(secret) == std::string::npos,
            "a message does not show a password", error.what());
  }
}

void try_url(std::string_view text) {
  // A password comes after a user's name or a colon, in the form of a URL.
  const std::string url = "redis://" + with_secret(text);
  keep_secret([&] { parse_server_url(url); });
  allow_errors([&] { parse_server_url(text); });
}

void try_file(std::string_view text) {
  const Fd file(memfd_create("config", MFD_CLOEXEC));
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return;
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  // It would be run.
  if (text.find("password-command") != std::string_view::npos) return;
  const auto nothing = [](const char*) { return static_cast<const char*>(nullptr); };
  allow_errors([&] { resolve(parse_command_line({"inspect", "--config", path}), nothing); });
}

void try_command_line(std::string_view text) {
  Pieces pieces(text);
  std::vector<std::string> arguments;
  while (!pieces.rest().empty() && arguments.size() < 30) {
    arguments.emplace_back(pieces.until('\n'));
    // No argument contains a NUL byte.
    auto& last = arguments.back();
    last.erase(std::remove(last.begin(), last.end(), '\0'), last.end());
  }
  std::map<std::string, std::string> variables;
  for (const std::string& each : arguments) {
    // It would be run.
    const bool is_command = each.starts_with("--password-command");
    if (is_command || each.starts_with("DLOCK_PASSWORD_COMMAND")) return;
    const auto equals = each.find('=');
    if (each.starts_with("DLOCK_") && equals != std::string::npos) {
      variables[each.substr(0, equals)] = each.substr(equals + 1);
    }
  }
  variables["HOME"] = "/nonexistent";
  variables["DLOCK_CONFIG"] = "/dev/null";
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  std::erase_if(arguments, [](const auto& each) { return each.starts_with("DLOCK_"); });
  allow_errors([&] {
    const CommandLine line = parse_command_line(arguments);
    if (line.command && !line.help && !line.version) resolve(line, environment, "/dev/null");
  });
}

}  // namespace

void try_input(std::string_view input) {
  Pieces pieces(input);
  switch (pieces.byte() % 3) {
    case 0:
      return try_url(pieces.rest());
    case 1:
      return try_file(pieces.rest());
    default:
      return try_command_line(pieces.rest());
  }
}

}  // namespace dlock::fuzz
