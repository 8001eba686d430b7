#include "config/server_choice.hpp"

#include "base/escape.hpp"

namespace dlock {
namespace {

/// `DLOCK_SERVER` may name several, with a space between.
std::vector<Given> split_at_spaces(const Given& given) {
  std::vector<Given> parts;
  std::string_view rest = given.text;
  while (true) {
    const auto from = rest.find_first_not_of(' ');
    if (from == std::string_view::npos) break;
    rest.remove_prefix(from);
    const auto part = rest.substr(0, rest.find(' '));
    parts.push_back({std::string(part), given.place, given.trouble});
    rest.remove_prefix(part.size());
  }
  if (parts.empty()) given.refuse("holds spaces alone: unset it, or give it a value");
  return parts;
}

Target parse_at(const Given& given) {
  try {
    return parse_server_url(given.text);
  } catch (const Error& fault) {
    given.refuse(fault.what());
  }
}

std::string password_in(const Given& file, std::vector<std::string>& warnings) {
  // Redis itself takes no longer one from a client it does not know yet.
  constexpr std::size_t longest_password = 16384;
  std::string content;
  try {
    content = read_whole(file.text, longest_password);
  } catch (const Error& fault) {
    file.refuse(fault.what());
  }
  if (content.ends_with('\n')) content.pop_back();
  if (content.empty()) file.refuse("the password in " + escaped(file.text) + " is empty");
  const auto warning = exposed_warning(file.text);
  if (!warning.empty()) warnings.push_back(warning);
  return content;
}

/// The password of the strongest configuration file that has one.
std::optional<std::string> password_of_files(const Sources& sources,
                                             std::vector<std::string>& warnings) {
  for (const ConfigFile& file : sources.files()) {
    for (const auto& [name, given] : file.entries) {
      if (name == "password") return given.text;
      if (name != "password-file") continue;
      // Cron, a login and systemd start in different directories.
      if (!given.text.starts_with('/')) given.refuse("is no absolute path");
      return password_in(given, warnings);
    }
  }
  return std::nullopt;
}

/// The password for a URL that brings `own`, if any, in the order that resolve() promises.
std::optional<std::string> find_password(const Sources& sources, std::optional<std::string> own,
                                         std::vector<std::string>& warnings) {
  // All variables are read first: an empty one is an error even where it does not count.
  const auto file_variable = sources.in_variable("DLOCK_PASSWORD_FILE");
  auto values = sources.in_variable("DLOCK_PASSWORD");
  for (auto& given : sources.in_variable("REDISCLI_AUTH")) values.push_back(std::move(given));

  const auto flag = sources.in_flags(option("password-file"));
  if (!flag.empty()) return password_in(flag.front(), warnings);
  if (own) return own;
  if (!file_variable.empty()) return password_in(file_variable.front(), warnings);
  if (!values.empty()) return values.front().text;
  return password_of_files(sources, warnings);
}

void add_password(const Given& given, const Sources& sources, ChosenServer& chosen) {
  auto* redis = std::get_if<RedisTarget>(&chosen.target);
  if (redis == nullptr) return;
  if (redis->password && given.place == option("server").shown()) {
    chosen.warnings.emplace_back(
        "a password on the command line can be seen by every user of this host: use "
        "--password-file");
  }
  redis->password = find_password(sources, redis->password, chosen.warnings);
  if (redis->user && !redis->password) {
    given.refuse(
        "a user without a password, which redis-cli would read as the password: write "
        "user:password@, or use --password-file or DLOCK_PASSWORD");
  }
}

}  // namespace

ChosenServer choose_server(const Sources& sources) {
  ChosenServer chosen;
  std::vector<Given> strongest;
  for (auto& place : sources.of(option("server"))) {
    if (place.front().place == option("server").variable) place = split_at_spaces(place.front());
    for (const Given& given : place) parse_at(given);
    if (strongest.empty()) strongest = std::move(place);
  }
  if (strongest.empty()) return chosen;
  if (strongest.size() > 1) {
    strongest.back().refuse("more than one server is not supported by this version");
  }
  chosen.configured = true;
  chosen.target = parse_at(strongest.front());
  add_password(strongest.front(), sources, chosen);
  return chosen;
}

}  // namespace dlock
