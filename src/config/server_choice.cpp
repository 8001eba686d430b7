#include "config/server_choice.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "config/password.hpp"
#include "config/secrets.hpp"

namespace dlock {
namespace {

/// Where a server is named, as messages write it: a flag needs no mention, since the user sees it.
std::string place_of_server(const SourcedValue& given) {
  constexpr std::string_view name = ": server";
  if (given.place.starts_with("--")) return "";
  const bool in_file = given.place.ends_with(name);
  return given.place.substr(0, given.place.size() - (in_file ? name.size() : 0));
}

/// Splits `DLOCK_SERVER`, which may name several servers, at spaces.
std::vector<SourcedValue> split_at_spaces(const SourcedValue& given) {
  std::vector<SourcedValue> parts;
  for (std::string_view rest = given.text; !rest.empty();) {
    const auto part = take_until(rest, ' ');
    if (!part.empty()) parts.push_back({std::string(part), given.place, given.trouble});
  }
  if (parts.empty()) given.refuse("holds only spaces: unset it, or give it a value");
  // dlock would take the front of a URL that was cut at a blank for a host, and show it.
  for (const SourcedValue& part : parts) {
    const bool ends_a_login = part.text.find('@') != std::string::npos;
    if (ends_a_login && part.text.find("://") == std::string::npos) {
      given.refuse("a URL contains a blank: in a user or password write %20");
    }
  }
  return parts;
}

Target parse_at(const SourcedValue& given) {
  try {
    return parse_server_url(given.text);
  } catch (const Error& fault) {
    given.refuse(fault.what());
  }
}

/// Several servers decide by majority, so each must be a single server and be named once.
Target quorum_of(const std::vector<SourcedValue>& given, ServerSettings& settings) {
  QuorumTarget quorum;
  for (const SourcedValue& each : given) {
    const Target one = parse_at(each);
    const auto* server = std::get_if<Endpoint>(&one);
    if (server == nullptr) {
      each.refuse("a majority takes independent servers only, redis://, rediss:// or unix://: " +
                  escaped(each.text.substr(0, each.text.find(':'))) + ": cannot be among them");
    }
    for (const Endpoint& other : quorum.servers) {
      if (other.address() == server->address()) {
        each.refuse(server->address() + " is named twice: a server has one vote");
      }
    }
    quorum.servers.push_back(*server);
  }
  if (quorum.servers.size() < 3) {
    given.back().refuse("two servers have no majority when one fails: name one, or three or more");
  }
  if (const auto count = given.size(); count % 2 == 0) {
    settings.warnings.push_back(std::to_string(count) +
                                " servers survive the loss of no more of them than " +
                                std::to_string(count - 1) + " do: name an odd number");
  }
  return quorum;
}

/// The servers that store locks, as far as the URL names them.
std::vector<Endpoint*> servers_in(Target& target) {
  std::vector<Endpoint*> servers;
  const auto add_all = [&](std::vector<Endpoint>& all) {
    for (Endpoint& each : all) servers.push_back(&each);
  };
  const auto add = [&](auto& named) {
    if constexpr (requires { named.servers; }) add_all(named.servers);
    if constexpr (requires { named.seeds; }) add_all(named.seeds);
    if constexpr (requires { named.master; }) servers.push_back(&named.master);
    if constexpr (std::is_same_v<decltype(named), Endpoint&>) servers.push_back(&named);
  };
  std::visit(add, target);
  return servers;
}

/// Sets the passwords that are missing in the URL, or all of them if a flag gives the password. It
/// opens a file only once, because the file may be a pipe, and runs a command once for all servers.
void complete_passwords(std::vector<std::optional<Password>*> passwords, const Sources& sources,
                        ServerSettings& settings) {
  const bool overrides =
      !sources.in_flags("password-file").empty() || !sources.in_flags("password-command").empty();
  std::erase_if(passwords, [&](const auto* each) { return each->has_value() && !overrides; });
  if (passwords.empty()) return;
  const auto found = configured_password(sources, settings);
  for (auto* each : passwords) *each = found;
}

/// Refuses a user without a password, and warns of a password in plain text.
void check_login(const Endpoint& server, const SourcedValue& given, ServerSettings& settings) {
  const bool redis = is_redis(settings.server);
  const bool etcd = std::holds_alternative<EtcdTarget>(settings.server);
  if (!redis && server.password && !server.tls && !is_this_host(server.host)) {
    settings.warnings.push_back("the password goes to " + server.address() + " in plain text" +
                                (etcd ? ": use etcds://" : ""));
  }
  if (!server.user || server.password) return;
  given.refuse(std::string("a user without a password") +
               (redis ? ", which redis-cli would read as the password" : "") +
               ": write user:password@, or use --password-file or DLOCK_PASSWORD");
}

void add_password(const SourcedValue& given, const Sources& sources, ServerSettings& settings) {
  auto* database = std::get_if<SqlTarget>(&settings.server);
  if (given.place == "--server" && holds_password(given.text)) {
    // Only a URL can hold the password of a key and similar secrets.
    const bool only_there = database != nullptr && !database->password;
    settings.warnings.push_back(
        std::string(only_there ? "a secret" : "a password") +
        " on the command line can be seen by every user of this host: use " +
        (only_there ? "DLOCK_SERVER" : "--password-file"));
  }
  // If no source has a password, the database's library looks for one.
  if (database != nullptr) return complete_passwords({&database->password}, sources, settings);
  auto servers = servers_in(settings.server);
  // In etcd and ZooKeeper a password belongs to a user, so a URL without a user needs none.
  if (!is_redis(settings.server)) {
    std::erase_if(servers, [](const Endpoint* server) { return !server->user; });
  }
  if (servers.empty()) {
    sources.refuse_flags({"password-file", "password-command"},
                         "no user in --server has a password");
  }
  std::vector<std::optional<Password>*> passwords;
  for (Endpoint* server : servers) passwords.push_back(&server->password);
  complete_passwords(std::move(passwords), sources, settings);
  for (const Endpoint* server : servers) check_login(*server, given, settings);
}

/// Returns the path of a readable file, made absolute: each new connection reads the file again, in
/// a process whose working directory may be "/".
std::optional<SourcedValue> readable_path(const char* name, const Sources& sources) {
  auto given = sources.first(name);
  if (!given) return given;
  const std::string path = path_from(*given);
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) given->refuse("cannot read " + in_quotes(path) + ": " + std::strerror(errno));
  std::error_code fault;
  given->text = std::filesystem::absolute(path, fault);
  if (fault) given->refuse("cannot tell where " + in_quotes(path) + " is: " + fault.message());
  return given;
}

std::string text_of(const std::optional<SourcedValue>& given) { return given ? given->text : ""; }

/// Sentinels have TLS if the master has it, unless --sentinel-tls says otherwise.
void add_sentinel_tls(const Sources& sources, ServerSettings& settings) {
  const auto given = sources.first("sentinel-tls");
  if (!given) return;
  const bool on = given->text == "on";
  if (!on && given->text != "off") given->refuse(in_quotes(given->text) + " is neither on nor off");
  auto* target = std::get_if<SentinelTarget>(&settings.server);
  if (target == nullptr) return;
  for (Endpoint& sentinel : target->sentinels) {
    sentinel.tls = on ? std::optional(TlsSettings{}) : std::nullopt;
  }
}

void add_tls(const Sources& sources, ServerSettings& settings) {
  auto servers = servers_in(settings.server);
  if (auto* sentinel = std::get_if<SentinelTarget>(&settings.server)) {
    for (Endpoint& each : sentinel->sentinels) servers.push_back(&each);
  }
  std::erase_if(servers, [](const Endpoint* server) { return !server->tls; });
  if (servers.empty()) {
    // A container may inherit the variables of its host without the files that they name.
    const bool database = std::holds_alternative<SqlTarget>(settings.server);
    return sources.refuse_flags(
        {"tls-ca", "tls-cert", "tls-key", "tls-server-name"},
        database ? "a database's URL says it: sslmode=verify-full&sslrootcert=FILE"
                 : "it goes with rediss, etcds or an https endpoint of s3, and this URL is none");
  }
  const auto certificate = readable_path("tls-cert", sources);
  const auto key = readable_path("tls-key", sources);
  const TlsSettings tls{text_of(readable_path("tls-ca", sources)), text_of(certificate),
                        text_of(key), text_of(sources.first("tls-server-name"))};
  if (certificate && !key) certificate->refuse("needs the key of the certificate: --tls-key FILE");
  if (key && !certificate) key->refuse("needs the certificate of the key: --tls-cert FILE");
  for (Endpoint* server : servers) server->tls = tls;
  if (key) warn_if_exposed(key->text, "a private key", settings.warnings);
}

void add_sentinel_login(const Sources& sources, ServerSettings& settings) {
  const auto user = sources.first("sentinel-user");
  const auto file = sources.first("sentinel-password-file");
  auto* target = std::get_if<SentinelTarget>(&settings.server);
  if (target == nullptr) {
    return sources.refuse_flags({"sentinel-user", "sentinel-password-file", "sentinel-tls"},
                                "the server's URL names no sentinels");
  }
  if (user && !file) user->refuse("needs the password: --sentinel-password-file FILE");
  if (!file) return;
  const Password password = password_in(*file, settings);
  for (Endpoint& sentinel : target->sentinels) {
    if (user) sentinel.user = user->text;
    sentinel.password = password;
  }
}

void refuse_what_no_layout_has(const CommandLine& line, const std::string& compat) {
  for (const char* name : {"shared", "limit", "owner", "latest", "preempt", "replicas", "prefix",
                           "fence", "reason", "all-kinds"}) {
    if (line.has(name)) throw_usage(compat + ": " + option(name).shown() + " does not go with it");
  }
  const bool has_patterns = subcommand(*line.command).operands == Operands::patterns;
  if (has_patterns && !line.operands.empty()) {
    throw_usage(compat + " takes keys, and no patterns: a name with * ? or [ goes after -k");
  }
}

/// The pattern that matches only this name.
std::string pattern_of(const LockKey& key) {
  std::string pattern;
  for (const char c : key.text) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

void choose_server(const Sources& sources, ServerSettings& settings) {
  std::vector<SourcedValue> strongest;
  for (auto& place : sources.of("server")) {
    if (place.empty()) continue;
    if (place.front().place == option("server").variable) place = split_at_spaces(place.front());
    for (const SourcedValue& given : place) parse_at(given);
    if (strongest.empty()) {
      strongest = std::move(place);
    } else if (strongest.front().trouble == ErrorKind::configuration &&
               strongest.front().text != place.front().text) {
      settings.overridden_place = place_of_server(place.front());
    }
  }
  settings.server_is_default = strongest.empty();
  if (strongest.empty()) {
    return sources.refuse_flags(flags_about_a_server,
                                "no server is named: it goes with --server or DLOCK_SERVER");
  }
  settings.server_place = place_of_server(strongest.front());
  const bool several = strongest.size() > 1;
  settings.server = several ? quorum_of(strongest, settings) : parse_at(strongest.front());
  if (std::holds_alternative<LocalTarget>(settings.server)) {
    sources.refuse_flags({"prefix"},
                         "locks on this host have none: name another directory, as in local:/DIR");
  }
  add_password(strongest.front(), sources, settings);
  add_sentinel_tls(sources, settings);
  add_tls(sources, settings);
  add_sentinel_login(sources, settings);
}

void choose_layout(const CommandLine& line, ServerSettings& settings) {
  const auto names = line.values("compat");
  if (names.empty()) return;
  if (names.size() > 1) {
    throw_usage("--compat goes with all keys of a command: there is a second one");
  }
  try {
    settings.layout = parse_layout(names.front());
  } catch (const Error& error) {
    throw error.reworded(std::string("--compat: ") + error.what());
  }
  const std::string compat = "--compat " + escaped(names.front());
  refuse_what_no_layout_has(line, compat);
  if (line.command == Command::renew && !line.has("ttl")) {
    throw_usage("missing ttl: " + compat + " does not store the one it was acquired with: -t DUR");
  }
  if (!line.has("key")) {
    const bool inspects = line.command == Command::inspect;
    throw_usage(std::string("missing key: dlock ") + subcommand(*line.command).name +
                " --compat LAYOUT -k KEY" + (inspects ? "; --all-kinds lists all" : ""));
  }
  if (!is_redis(settings.server)) {
    throw_usage(compat + ": the locks of other libraries live in Redis: name it with --server");
  }
  if (std::holds_alternative<QuorumTarget>(settings.server) && !settings.layout->may_be_redlock()) {
    throw_usage(compat + ": its library does not use several servers: name one");
  }
}

void warn_of_engine(ClaimSettings& settings) {
  if (!std::holds_alternative<MemcachedTarget>(settings.server)) return;
  settings.warnings.push_back(
      "memcached forgets locks when it is full or restarts: for efficiency only");
}

void choose_shown(InspectSettings& settings) {
  if (std::holds_alternative<MemcachedTarget>(settings.server)) {
    std::erase_if(settings.patterns, [&](const std::string& pattern) {
      const bool is_key = pattern_of(LockKey{pattern}) == pattern;
      const auto& keys = settings.keys;
      const bool is_new = std::find(keys.begin(), keys.end(), LockKey{pattern}) == keys.end();
      if (is_key && is_new) settings.keys.push_back(LockKey{pattern});
      return is_key;
    });
  }
  if (!settings.all_kinds) return;
  if (settings.watch || settings.metrics) {
    throw_usage("--all-kinds does not go with --watch and --metrics");
  }
  const Target& server = settings.server;
  if (!is_redis(server) || std::holds_alternative<QuorumTarget>(server))
    throw_usage("--all-kinds: name one Redis, its sentinels or a Cluster");
  for (const LockKey& key : settings.keys) settings.patterns.push_back(pattern_of(key));
  settings.keys.clear();
}

}  // namespace dlock
