#include "config/server_choice.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "config/password_choice.hpp"
#include "config/redaction.hpp"
#include "config/values.hpp"

namespace dlock {
namespace {

constexpr milliseconds longest_ttl_of_a_quorum = std::chrono::seconds(60);
/// A restarted server waits twice the longest ttl before it votes again: what a majority is to
/// remember for longer, it may forget.
constexpr milliseconds longest_min_hold_of_a_quorum = 2 * longest_ttl_of_a_quorum;

/// `DLOCK_SERVER` may name several, with a space between.
std::vector<SourcedValue> split_at_spaces(const SourcedValue& given) {
  std::vector<SourcedValue> parts;
  std::string_view rest = given.text;
  while (true) {
    const auto from = rest.find_first_not_of(' ');
    if (from == std::string_view::npos) break;
    rest.remove_prefix(from);
    const auto part = rest.substr(0, rest.find(' '));
    parts.push_back({std::string(part), given.place, given.trouble});
    rest.remove_prefix(part.size());
  }
  if (parts.empty()) given.refuse("holds only spaces: unset it, or give it a value");
  // Its front would be taken for a host and shown.
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

void warn(ChosenServer& chosen, const std::string& warning) {
  auto& warnings = chosen.warnings;
  if (std::find(warnings.begin(), warnings.end(), warning) != warnings.end()) return;
  warnings.push_back(warning);
}

void warn_of_open(const char* secret, const SourcedValue& given, const char* way_out,
                  ChosenServer& chosen) {
  if (given.place != option("server").shown()) return;
  warn(chosen, std::string(secret) +
                   " on the command line can be seen by every user of this host: use " + way_out);
}

void warn_of_open_password(const SourcedValue& given, ChosenServer& chosen) {
  warn_of_open("a password", given, "--password-file", chosen);
}

/// What neither the URL nor dlock's own settings have, the database's library looks for.
void add_password(const SourcedValue& given, const Sources& sources, SqlTarget& database,
                  ChosenServer& chosen) {
  if (database.has_password) {
    warn_of_open_password(given, chosen);
  } else if (holds_password(given.text)) {
    // Only a URL has a place for the password of a key and its like.
    warn_of_open("a secret", given, "DLOCK_SERVER", chosen);
  }
  OnePassword found(sources, false);
  const auto in_url = database.has_password ? std::optional<Password>("") : std::nullopt;
  const auto password = found.find(in_url);
  for (const std::string& warning : found.warnings) warn(chosen, warning);
  if (password && *password != "") database.password = password;
}

void add_password(const SourcedValue& given, const Sources& sources, ChosenServer& chosen) {
  if (auto* database = std::get_if<SqlTarget>(&chosen.target)) {
    add_password(given, sources, *database, chosen);
  }
  const bool etcd = std::holds_alternative<EtcdTarget>(chosen.target);
  const bool redis = is_redis(chosen.target);
  auto servers = servers_in(chosen.target);
  // There a password is a user's: without one in the URL none is looked for.
  if (!redis) std::erase_if(servers, [](const Endpoint* server) { return !server->user; });
  const bool none_asks = servers.empty() && !std::holds_alternative<SqlTarget>(chosen.target);
  if (none_asks) {
    refuse_flags(sources, {"password-file", "password-command"},
                 "no user in --server has a password");
  }
  OnePassword passwords(sources, redis);
  for (Endpoint* server : servers) {
    if (server->password) warn_of_open_password(given, chosen);
    server->password = passwords.find(server->password);
    for (const std::string& warning : passwords.warnings) warn(chosen, warning);
    if (!redis && server->password && !server->tls && !is_this_host(server->host)) {
      warn(chosen, "the password goes to " + server->address() + " in plain text" +
                       (etcd ? ": use etcds://" : ""));
    }
    if (!server->user || server->password) continue;
    if (!redis) {
      given.refuse(
          "a user without a password: write user:password@, or use --password-file or "
          "DLOCK_PASSWORD");
    }
    given.refuse(
        "a user without a password, which redis-cli would read as the password: write "
        "user:password@, or use --password-file or DLOCK_PASSWORD");
  }
}

/// The strongest value of an option that is a path; all are checked.
std::optional<SourcedValue> path_of(const char* name, const Sources& sources) {
  auto places = sources.of(name);
  for (auto& place : places) place.front().text = readable_path_from(place.front());
  if (places.empty()) return std::nullopt;
  return places.front().front();
}

std::string text_of(const std::optional<SourcedValue>& given) { return given ? given->text : ""; }

constexpr const char* no_prefix =
    "locks on this host have none: name another directory, as in local:/DIR";

bool holds_private_key(const std::string& path) {
  constexpr std::size_t largest_key = 1 << 20;
  try {
    return read_whole(path, largest_key).find("PRIVATE KEY") != std::string::npos;
  } catch (const Error&) {
    return false;  // whoever uses it says what is wrong
  }
}

std::vector<Endpoint*> servers_under_tls(Target& target) {
  auto servers = servers_in(target);
  if (auto* sentinel = std::get_if<SentinelTarget>(&target)) {
    for (Endpoint& each : sentinel->sentinels) servers.push_back(&each);
  }
  std::erase_if(servers, [](const Endpoint* server) { return !server->tls; });
  return servers;
}

/// Throws where one of the settings of TLS, or a file that it names, is of no use.
TlsSettings tls_settings(const Sources& sources) {
  const auto certificate = path_of("tls-cert", sources);
  const auto key = path_of("tls-key", sources);
  const auto names = sources.of("tls-server-name");
  TlsSettings settings{text_of(path_of("tls-ca", sources)), text_of(certificate), text_of(key), ""};
  if (certificate && !key) certificate->refuse("needs the key of the certificate: --tls-key FILE");
  if (key && !certificate) key->refuse("needs the certificate of the key: --tls-cert FILE");
  if (!names.empty()) settings.server_name = host_name_from(names.front().front());
  return settings;
}

void add_tls(const Sources& sources, ChosenServer& chosen) {
  const auto servers = servers_under_tls(chosen.target);
  if (servers.empty()) {
    // A container may have the variables of its host without the files that they name.
    const bool database = std::holds_alternative<SqlTarget>(chosen.target);
    return refuse_flags(
        sources, {"tls-ca", "tls-cert", "tls-key", "tls-server-name"},
        database ? "a database's URL says it: sslmode=verify-full&sslrootcert=FILE"
                 : "the server's URL does not begin with rediss or etcds, so there is no TLS");
  }
  const TlsSettings settings = tls_settings(sources);
  for (Endpoint* server : servers) server->tls = settings;
  if (settings.key.empty() || !holds_private_key(settings.key)) return;
  const auto warning = exposed_warning(settings.key, "a private key");
  if (!warning.empty()) chosen.warnings.push_back(warning);
}

void add_sentinel_login(const Sources& sources, ChosenServer& chosen) {
  const auto users = sources.of("sentinel-user");
  const auto files = sources.of("sentinel-password-file");
  auto* target = std::get_if<SentinelTarget>(&chosen.target);
  if (target == nullptr) {
    return refuse_flags(sources, {"sentinel-user", "sentinel-password-file"},
                        "the server's URL names no sentinels");
  }
  if (!users.empty() && files.empty()) {
    users.front().front().refuse("needs the password: --sentinel-password-file FILE");
  }
  if (files.empty()) return;
  const Password password = password_in(files.front().front(), chosen.warnings);
  for (Endpoint& sentinel : target->sentinels) {
    if (!users.empty()) sentinel.user = users.front().front().text;
    sentinel.password = password;
  }
}

/// Several servers decide by majority, so each has to be one alone, and no other.
Target quorum_of(const std::vector<SourcedValue>& given) {
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
  return quorum;
}

}  // namespace

ChosenServer choose_server(const Sources& sources) {
  ChosenServer chosen;
  std::vector<SourcedValue> strongest;
  for (auto& place : sources.of("server")) {
    if (place.front().place == option("server").variable) place = split_at_spaces(place.front());
    for (const SourcedValue& given : place) parse_at(given);
    if (strongest.empty()) strongest = std::move(place);
  }
  if (strongest.empty()) {
    refuse_flags(sources, flags_about_a_server,
                 "no server is named: it goes with --server or DLOCK_SERVER");
    refuse_flags(sources, {"prefix"}, no_prefix);
    return chosen;
  }
  chosen.configured = true;
  const auto count = strongest.size();
  chosen.target = count > 1 ? quorum_of(strongest) : parse_at(strongest.front());
  if (count > 1 && count % 2 == 0) {
    chosen.warnings.push_back(std::to_string(count) +
                              " servers survive the loss of no more of them than " +
                              std::to_string(count - 1) + " do: name an odd number");
  }
  const bool local = std::holds_alternative<LocalTarget>(chosen.target);
  if (local) refuse_flags(sources, {"prefix"}, no_prefix);
  add_password(strongest.front(), sources, chosen);
  add_tls(sources, chosen);
  add_sentinel_login(sources, chosen);
  return chosen;
}

int replicas_of(const Target& server, const Sources& sources) {
  constexpr int most_replicas = 1000;
  const auto given = sources.in_flags("replicas");
  if (given.empty()) return 0;
  const auto replicas = number_from(given.front(), "number of replicas", 1, most_replicas);
  if (std::holds_alternative<LocalTarget>(server)) {
    throw_usage("--replicas: locks on this host have none: it needs a Redis server");
  }
  if (!is_redis(server)) {
    throw_usage("--replicas: it goes with Redis; others say it on the server");
  }
  if (std::holds_alternative<QuorumTarget>(server)) {
    throw_usage("--replicas: on a majority of servers a replica has no vote: name one server");
  }
  return static_cast<int>(replicas);
}

void check_quorum(const Target& server, const Sources& sources, std::optional<milliseconds> ttl,
                  std::optional<milliseconds> min_hold) {
  if (!std::holds_alternative<QuorumTarget>(server)) return;
  const auto at_most = [&](const char* name, std::optional<milliseconds> span, milliseconds most,
                           const std::string& why) {
    if (span.value_or(milliseconds(0)) <= most) return;
    const SourcedValue given = sources.of(name).front().front();
    given.refuse("at most " + human_duration(most) + " on a majority of servers; " + why);
  };
  at_most("ttl", ttl, longest_ttl_of_a_quorum, "dlock renews it while the command runs");
  at_most("min-hold", min_hold, longest_min_hold_of_a_quorum,
          "a server that restarts may forget a longer one");
}

}  // namespace dlock
