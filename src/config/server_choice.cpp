#include "config/server_choice.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "config/password_command.hpp"
#include "config/url_parts.hpp"
#include "config/user_text.hpp"

namespace dlock {
namespace {

/// Splits `DLOCK_SERVER`, which may name several servers, at spaces.
std::vector<SourcedValue> split_at_spaces(const SourcedValue& given) {
  std::vector<SourcedValue> parts;
  for (std::string_view rest = given.text; !rest.empty();) {
    const auto part = take_until(rest, ' ');
    if (!part.empty()) parts.push_back({std::string(part), given.place, given.trouble});
  }
  if (parts.empty()) given.refuse("holds only spaces: unset it, or give it a value");
  // The front of a URL that was cut at a blank would be taken for a host and shown.
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

/// The servers that locks live on, as far as the URL knows them.
std::vector<Endpoint*> servers_in(Target& target) {
  std::vector<Endpoint*> servers;
  const auto add_all = [&](std::vector<Endpoint>& all) {
    for (Endpoint& each : all) servers.push_back(&each);
  };
  if (auto* redis = std::get_if<Endpoint>(&target)) servers.push_back(redis);
  if (auto* sentinel = std::get_if<SentinelTarget>(&target)) servers.push_back(&sentinel->master);
  if (auto* cluster = std::get_if<ClusterTarget>(&target)) add_all(cluster->seeds);
  if (auto* etcd = std::get_if<EtcdTarget>(&target)) add_all(etcd->servers);
  if (auto* zookeeper = std::get_if<ZooKeeperTarget>(&target)) add_all(zookeeper->servers);
  if (auto* quorum = std::get_if<QuorumTarget>(&target)) add_all(quorum->servers);
  return servers;
}

void warn(ServerSettings& settings, const std::string& warning) {
  auto& warnings = settings.warnings;
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
    warnings.push_back(warning);
  }
}

void warn_of_open_file(const SourcedValue& file, const char* secret, ServerSettings& settings) {
  const std::string warning = exposed_warning(file.text, secret);
  if (!warning.empty()) warn(settings, warning);
}

void warn_of_open(const char* secret, const SourcedValue& given, const char* way_out,
                  ServerSettings& settings) {
  if (given.place != option("server").shown()) return;
  warn(settings, std::string(secret) +
                     " on the command line can be seen by every user of this host: use " + way_out);
}

/// A path. In a configuration file it must be absolute, because cron, a login and systemd start in
/// different directories.
const std::string& path_from(const SourcedValue& given) {
  const bool in_file = given.trouble == ErrorKind::configuration;
  if (in_file && !given.text.starts_with('/')) given.refuse("is not an absolute path");
  return given.text;
}

/// An error of `read` names the source of `given`.
Password::Read reader_of(const SourcedValue& given, Password::Read read) {
  return [given, read = std::move(read)](const CallOptions& call_options) {
    try {
      return read(call_options);
    } catch (const Error& fault) {
      if (fault.kind() == ErrorKind::interrupted) throw;
      given.refuse(fault.what());
    }
  };
}

std::string read_password(const std::string& path) {
  std::string content = read_whole(path, longest_password);
  if (content.ends_with('\n')) content.pop_back();
  if (content.empty()) throw_usage("the password in " + escaped(path) + " is empty");
  return content;
}

/// The password in a file, read for each login if it is a regular file: a pipe can be read only
/// once, and a descriptor may be reused later.
Password password_in(const SourcedValue& file, ServerSettings& settings) {
  std::error_code error;
  std::string path = std::filesystem::absolute(path_from(file), error).string();
  const bool once = path.starts_with("/dev/") || path.starts_with("/proc/") ||
                    !std::filesystem::is_regular_file(path, error);
  if (once) path = file.text;
  const auto read = reader_of(file, [path](const CallOptions&) { return read_password(path); });
  Password password = once ? Password(read({})) : Password(read);
  warn_of_open_file(file, "a password", settings);
  return password;
}

Password password_by(const SourcedValue& command) {
  return Password(reader_of(command, password_command(command.text)));
}

/// The password beside the URL, in the order that resolve() documents.
std::optional<Password> configured_password(const Sources& sources, ServerSettings& settings) {
  const auto first_of = [&](const std::vector<SourcedValue>& file,
                            const std::vector<SourcedValue>& command) -> std::optional<Password> {
    if (!file.empty() && !command.empty()) {
      command.front().refuse("excludes " + file.front().place);
    }
    if (!file.empty()) return password_in(file.front(), settings);
    if (!command.empty()) return password_by(command.front());
    return std::nullopt;
  };
  auto found = first_of(sources.in_flags("password-file"), sources.in_flags("password-command"));
  if (!found) {
    found = first_of(sources.in_variable(option("password-file").variable),
                     sources.in_variable(option("password-command").variable));
  }
  if (found) return found;
  auto values = sources.in_variable(option("password").variable);
  if (values.empty() && is_redis(settings.server)) values = sources.in_variable("REDISCLI_AUTH");
  if (!values.empty()) return values.front().text;
  for (const ConfigFile& file : sources.files()) {
    for (const auto& [name, given] : file.entries) {
      if (name == "password") return given.text;
      if (name == "password-command") return password_by(given);
      if (name == "password-file") return password_in(given, settings);
    }
  }
  return std::nullopt;
}

/// Sets the passwords of servers whose URL has none; those of flags override the URL. It opens a
/// file only once, because that may be a pipe, and runs a command only once for all servers.
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
    warn(settings, "the password goes to " + server.address() + " in plain text" +
                       (etcd ? ": use etcds://" : ""));
  }
  if (!server.user || server.password) return;
  given.refuse(std::string("a user without a password") +
               (redis ? ", which redis-cli would read as the password" : "") +
               ": write user:password@, or use --password-file or DLOCK_PASSWORD");
}

void add_password(const SourcedValue& given, const Sources& sources, ServerSettings& settings) {
  if (auto* database = std::get_if<SqlTarget>(&settings.server)) {
    if (database->password) {
      warn_of_open("a password", given, "--password-file", settings);
    } else if (holds_password(given.text)) {
      // Only a URL can hold the password of a key and similar secrets.
      warn_of_open("a secret", given, "DLOCK_SERVER", settings);
    }
    // If there is none, the database's library looks for one.
    return complete_passwords({&database->password}, sources, settings);
  }
  auto servers = servers_in(settings.server);
  // In etcd and ZooKeeper a password belongs to a user, so a URL without a user needs none.
  if (!is_redis(settings.server)) {
    std::erase_if(servers, [](const Endpoint* server) { return !server->user; });
  }
  if (servers.empty()) {
    refuse_flags(sources, {"password-file", "password-command"},
                 "no user in --server has a password");
  }
  std::vector<std::optional<Password>*> passwords;
  for (Endpoint* server : servers) {
    if (server->password) warn_of_open("a password", given, "--password-file", settings);
    passwords.push_back(&server->password);
  }
  complete_passwords(std::move(passwords), sources, settings);
  for (const Endpoint* server : servers) check_login(*server, given, settings);
}

/// The absolute path with the highest precedence; all given paths are checked. Each new connection
/// reads the file again, in a process whose working directory may be "/".
std::optional<SourcedValue> readable_path(const char* name, const Sources& sources) {
  auto places = sources.of(name);
  for (auto& place : places) {
    SourcedValue& given = place.front();
    const std::string path = path_from(given);
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) given.refuse("cannot read " + in_quotes(path) + ": " + std::strerror(errno));
    std::error_code fault;
    given.text = std::filesystem::absolute(path, fault);
    if (fault) given.refuse("cannot tell where " + in_quotes(path) + " is: " + fault.message());
  }
  if (places.empty()) return std::nullopt;
  return places.front().front();
}

std::string text_of(const std::optional<SourcedValue>& given) { return given ? given->text : ""; }

void add_tls(const Sources& sources, ServerSettings& settings) {
  auto servers = servers_in(settings.server);
  if (auto* sentinel = std::get_if<SentinelTarget>(&settings.server)) {
    for (Endpoint& each : sentinel->sentinels) servers.push_back(&each);
  }
  std::erase_if(servers, [](const Endpoint* server) { return !server->tls; });
  if (servers.empty()) {
    // A container may inherit the variables of its host without the files that they name.
    const bool database = std::holds_alternative<SqlTarget>(settings.server);
    return refuse_flags(
        sources, {"tls-ca", "tls-cert", "tls-key", "tls-server-name"},
        database ? "a database's URL says it: sslmode=verify-full&sslrootcert=FILE"
                 : "the server's URL does not begin with rediss or etcds, so there is no TLS");
  }
  const auto certificate = readable_path("tls-cert", sources);
  const auto key = readable_path("tls-key", sources);
  const auto names = sources.of("tls-server-name");
  TlsSettings tls{text_of(readable_path("tls-ca", sources)), text_of(certificate), text_of(key),
                  ""};
  if (certificate && !key) certificate->refuse("needs the key of the certificate: --tls-key FILE");
  if (key && !certificate) key->refuse("needs the certificate of the key: --tls-cert FILE");
  if (!names.empty()) {
    const SourcedValue& name = names.front().front();
    if (!is_host(name.text)) name.refuse("invalid host name or address " + in_quotes(name.text));
    tls.server_name = name.text;
  }
  for (Endpoint* server : servers) server->tls = tls;
  if (key) warn_of_open_file(*key, "a private key", settings);
}

void add_sentinel_login(const Sources& sources, ServerSettings& settings) {
  const auto users = sources.of("sentinel-user");
  const auto files = sources.of("sentinel-password-file");
  auto* target = std::get_if<SentinelTarget>(&settings.server);
  if (target == nullptr) {
    return refuse_flags(sources, {"sentinel-user", "sentinel-password-file"},
                        "the server's URL names no sentinels");
  }
  if (!users.empty() && files.empty()) {
    users.front().front().refuse("needs the password: --sentinel-password-file FILE");
  }
  if (files.empty()) return;
  const Password password = password_in(files.front().front(), settings);
  for (Endpoint& sentinel : target->sentinels) {
    if (!users.empty()) sentinel.user = users.front().front().text;
    sentinel.password = password;
  }
}

Layout layout_from(const std::string& text) {
  try {
    return parse_layout(text);
  } catch (const Error& error) {
    throw error.reworded(std::string("--compat: ") + error.what());
  }
}

void refuse_what_no_layout_has(const CommandLine& line, const std::string& compat) {
  for (const char* name : {"shared", "limit", "owner", "latest", "replicas", "prefix", "fence",
                           "reason", "all-kinds"}) {
    if (line.has(name)) throw_usage(compat + ": " + option(name).shown() + " does not go with it");
  }
  const bool has_patterns = subcommand(*line.command).operands == Operands::patterns;
  if (has_patterns && !line.operands.empty()) {
    throw_usage(compat + " takes keys, and no patterns: a name with * ? or [ goes after -k");
  }
}

void check_server(const Target& server, const Layout& layout, const std::string& compat) {
  if (!is_redis(server)) {
    throw_usage(compat + ": the locks of other libraries live in Redis: name it with --server");
  }
  if (std::holds_alternative<QuorumTarget>(server) && !layout.may_be_redlock()) {
    throw_usage(compat + ": its library does not use several servers: name one");
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
    if (place.front().place == option("server").variable) place = split_at_spaces(place.front());
    for (const SourcedValue& given : place) parse_at(given);
    if (strongest.empty()) strongest = std::move(place);
  }
  settings.server_is_default = strongest.empty();
  if (strongest.empty()) {
    refuse_flags(sources, flags_about_a_server,
                 "no server is named: it goes with --server or DLOCK_SERVER");
    return;
  }
  const bool several = strongest.size() > 1;
  settings.server = several ? quorum_of(strongest, settings) : parse_at(strongest.front());
  if (std::holds_alternative<LocalTarget>(settings.server)) {
    refuse_flags(sources, {"prefix"},
                 "locks on this host have none: name another directory, as in local:/DIR");
  }
  add_password(strongest.front(), sources, settings);
  add_tls(sources, settings);
  add_sentinel_login(sources, settings);
}

void choose_layout(const CommandLine& line, LockSettings& settings) {
  const auto names = line.values("compat");
  if (names.empty()) return;
  if (names.size() > 1) {
    throw_usage("--compat goes with all keys of a command: there is a second one, \"" +
                escaped(names[1]) + "\"");
  }
  settings.layout = layout_from(names.front());
  const std::string compat = "--compat " + escaped(names.front());
  refuse_what_no_layout_has(line, compat);
  if (line.command == Command::renew && !line.has("ttl")) {
    throw_usage("missing ttl: " + compat + " does not store the one it was acquired with: -t DUR");
  }
  if (settings.keys.empty()) {
    throw_usage("missing key: dlock inspect --compat LAYOUT -k KEY; --all-kinds lists all");
  }
  check_server(settings.server, *settings.layout, compat);
}

void choose_all_kinds(InspectSettings& settings) {
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
