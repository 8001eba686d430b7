#include "redis/server_error.hpp"

#include <algorithm>
#include <string_view>

#include "base/text.hpp"

namespace dlock {
namespace {

/// What an error reply means, known by its code or by a part of its text.
struct Meaning {
  std::string_view mark;
  ErrorKind kind;
  std::string_view text;
  Cause cause = Cause::other_reply;
};

/// The words of server.c and friends in Redis 6.2 to 8 and Valkey 8.
constexpr Meaning codes[] = {
    {"DLOCKDATA", ErrorKind::wrong_data, "the key holds data that is not a lock"},
    {"WRONGTYPE", ErrorKind::wrong_data, "the key holds data that is not a lock"},
    {"NOAUTH", ErrorKind::denied,
     "the server wants a password, perhaps a user (redis://USER@HOST): --password-file, for "
     "sentinels --sentinel-password-file",
     Cause::password_missing},
    {"WRONGPASS", ErrorKind::denied, "user name or password is wrong", Cause::password_wrong},
    {"NOPERM", ErrorKind::denied,
     "the user may not do this: its ACL lacks a command, key or channel", Cause::acl},
    {"DENIED", ErrorKind::denied, "the server is in protected mode and refuses other hosts",
     Cause::protected_mode},
    {"LOADING", ErrorKind::unavailable, "the server is still loading its data", Cause::loading},
    {"READONLY", ErrorKind::unavailable, "the server is a read-only replica, and not the master",
     Cause::read_only},
    {"MASTERDOWN", ErrorKind::unavailable, "the server is a replica that has lost its master",
     Cause::read_only},
    {"OOM", ErrorKind::unavailable, "the server is out of memory (maxmemory)",
     Cause::out_of_memory},
    {"MISCONF", ErrorKind::unavailable, "the server cannot save to disk and refuses writes",
     Cause::cannot_save},
    {"NOREPLICAS", ErrorKind::unavailable, "the server has too few replicas and refuses writes",
     Cause::too_few_replicas},
    {"BUSY", ErrorKind::unavailable, "the server is busy with somebody's script", Cause::busy},
    {"MOVED", ErrorKind::unavailable, "the server is a Cluster node and the key lives on another"},
    {"ASK", ErrorKind::unavailable,
     "the server is a Cluster node and the key is moving to another"},
    {"CLUSTERDOWN", ErrorKind::unavailable, "the Cluster is down"},
    {"CROSSSLOT", ErrorKind::bug, "keys of one lock in different Cluster slots"},
    {"TRYAGAIN", ErrorKind::unavailable, "the Cluster is moving the key"},
    {"NOPROTO", ErrorKind::unavailable, "the server refuses the protocol"},
};

constexpr std::string_view no_scripts =
    "the server runs no scripts, and a lock of dlock is one: enable EVAL and EVALSHA (Lua), or "
    "write redis+sentinel:// if it is a sentinel";

constexpr std::string_view no_password =
    "the server's default user has no password, but one is set: whose it is stands in the URL, "
    "redis://USER@HOST";

/// What has no code of its own.
constexpr Meaning phrases[] = {
    {"invalid password", ErrorKind::denied, "the password is wrong", Cause::password_wrong},
    {"AUTH <password> called without", ErrorKind::denied, no_password, Cause::password_unneeded},
    {"no password is set", ErrorKind::denied, no_password, Cause::password_unneeded},
    {"wrong number of arguments for 'auth'", ErrorKind::denied, "the server knows no user names",
     Cause::password_wrong},
    {"can't run this command", ErrorKind::denied,
     "the user may not do this: its ACL lacks a command", Cause::acl},
    {"can't access at least one of the keys", ErrorKind::denied,
     "the user may not do this: its ACL lacks the key", Cause::acl},
    {"can't publish to the channel", ErrorKind::denied,
     "the user may not do this: its ACL lacks the channel", Cause::acl},
    {"DB index is out of range", ErrorKind::unavailable, "the server has no such database",
     Cause::no_such_database},
    {"invalid DB index", ErrorKind::unavailable, "the server has no such database",
     Cause::no_such_database},
    {"SELECT is not allowed in cluster", ErrorKind::unavailable, "a Cluster has database 0 only",
     Cause::no_such_database},
    {"unknown command 'EVAL", ErrorKind::unavailable, no_scripts},
    {"unknown command `EVAL", ErrorKind::unavailable, no_scripts},
    {"unknown command 'AUTH'", ErrorKind::unavailable, "the server knows no passwords",
     Cause::password_unneeded},
    {"unknown command `AUTH`", ErrorKind::unavailable, "the server knows no passwords",
     Cause::password_unneeded},
    {"unknown command", ErrorKind::unavailable, "the server lacks a command dlock needs"},
    {"max number of clients reached", ErrorKind::unavailable, "the server has too many clients",
     Cause::too_many_clients},
};

bool has_code(std::string_view text, std::string_view code) {
  for (auto at = text.find(code); at != std::string_view::npos; at = text.find(code, at + 1)) {
    const auto end = at + code.size();
    const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '-';
    if (begins && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

/// Nothing if it is an error that no table has.
const Meaning* meaning_of(const Reply& reply) {
  for (const Meaning& each : codes) {
    if (is_of_class(reply, each.mark)) return &each;
  }
  for (const Meaning& each : phrases) {
    if (reply.text.find(each.mark) != std::string::npos) return &each;
  }
  return nullptr;
}

Error made(const Meaning* known, std::string_view said) {
  constexpr Meaning unknown{"", ErrorKind::unavailable, "the server refused"};
  const Meaning& meaning = known == nullptr ? unknown : *known;
  // After this phrase Redis repeats what it was sent, perhaps a password.
  said = said.substr(0, said.find(", with args beginning with"));
  // Here it says where in the script; of use where the error is one of the script itself.
  if (known != nullptr) said = said.substr(0, said.find(" script: "));
  constexpr std::size_t enough = 200;
  return {meaning.kind,
          std::string(meaning.text) + " (it said: " + escaped(said.substr(0, enough)) + ")",
          meaning.cause};
}

/// `text` with *** in place of each secret, read once from its beginning to its end.
std::string scrubbed(std::string_view text, std::span<const std::string> secrets) {
  std::string shown;
  while (!text.empty()) {
    std::size_t longest = 0;
    for (const std::string& secret : secrets) {
      if (text.starts_with(secret)) longest = std::max(longest, secret.size());
    }
    shown += longest > 0 ? "***" : text.substr(0, 1);
    text.remove_prefix(std::max<std::size_t>(longest, 1));
  }
  return shown;
}

}  // namespace

bool is_of_class(const Reply& reply, std::string_view code) {
  if (!reply.is_error()) return false;
  const std::string_view text = reply.text;
  const bool wrapped = text.starts_with("ERR Error running script");
  return wrapped ? has_code(text, code) : text.substr(0, text.find(' ')) == code;
}

Error server_error(const Reply& reply) { return made(meaning_of(reply), reply.text); }

Error server_error(const Reply& reply, const std::string& server) {
  const Error error = server_error(reply);
  return error.reworded(server + ": " + error.what());
}

Error auth_error(const Reply& reply, std::span<const std::string> credentials) {
  const Meaning* known = meaning_of(reply);
  // A password may be a word of the server's own sentence: *** there would tell which.
  Error error = made(known, known != nullptr ? known->mark : scrubbed(reply.text, credentials));
  const bool broken = std::any_of(credentials.begin(), credentials.end(), [](const auto& each) {
    return each.ends_with('\n') || each.ends_with('\r');
  });
  if (!broken || error.cause() != Cause::password_wrong) return error;
  return error.reworded(std::string("the password ends with a line break: ") + error.what());
}

}  // namespace dlock
