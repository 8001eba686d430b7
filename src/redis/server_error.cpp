#include "redis/server_error.hpp"

#include <string_view>

#include "base/escape.hpp"

namespace dlock {
namespace {

struct Class {
  std::string_view code;
  ErrorKind trouble;
  std::string_view meaning;
};

/// The words of server.c and friends in Redis 6.2 to 8 and Valkey 8.
constexpr Class classes[] = {
    {"DLOCKDATA", ErrorKind::wrong_data, "the key holds data that is not a lock"},
    {"WRONGTYPE", ErrorKind::wrong_data, "the key holds data that is not a lock"},
    {"NOAUTH", ErrorKind::denied,
     "the server wants a password: --password-file, for sentinels --sentinel-password-file"},
    {"WRONGPASS", ErrorKind::denied, "user name or password is wrong"},
    {"NOPERM", ErrorKind::denied,
     "the user may not do this: its ACL lacks a command, key or channel"},
    {"DENIED", ErrorKind::denied, "the server is in protected mode and refuses other hosts"},
    {"LOADING", ErrorKind::unavailable, "the server is still loading its data"},
    {"READONLY", ErrorKind::unavailable, "the server is a read-only replica: name the master"},
    {"MASTERDOWN", ErrorKind::unavailable, "the server is a replica that has lost its master"},
    {"OOM", ErrorKind::unavailable, "the server is out of memory (maxmemory)"},
    {"MISCONF", ErrorKind::unavailable, "the server cannot save to disk and refuses writes"},
    {"NOREPLICAS", ErrorKind::unavailable, "the server has too few replicas and refuses writes"},
    {"BUSY", ErrorKind::unavailable, "the server is busy with somebody's script"},
    {"MOVED", ErrorKind::unavailable, "the server is a Cluster node and the key lives on another"},
    {"ASK", ErrorKind::unavailable,
     "the server is a Cluster node and the key is moving to another"},
    {"CLUSTERDOWN", ErrorKind::unavailable, "the Cluster is down"},
    {"CROSSSLOT", ErrorKind::bug, "keys of one lock in different Cluster slots"},
    {"TRYAGAIN", ErrorKind::unavailable, "the Cluster is moving the key"},
    {"NOPROTO", ErrorKind::unavailable, "the server refuses the protocol"},
};

struct Phrase {
  std::string_view text;
  ErrorKind trouble;
  std::string_view meaning;
};

constexpr std::string_view no_scripts =
    "the server runs no scripts, and a lock of dlock is one: enable EVAL and EVALSHA (Lua), or "
    "write redis+sentinel:// if it is a sentinel";

/// What has no class of its own.
constexpr Phrase phrases[] = {
    {"invalid password", ErrorKind::denied, "the password is wrong"},
    {"AUTH <password> called without", ErrorKind::denied,
     "the server has no password, but one is set"},
    {"no password is set", ErrorKind::denied, "the server has no password, but one is set"},
    {"wrong number of arguments for 'auth'", ErrorKind::denied, "the server knows no user names"},
    {"can't run this command", ErrorKind::denied,
     "the user may not do this: its ACL lacks a command"},
    {"can't access at least one of the keys", ErrorKind::denied,
     "the user may not do this: its ACL lacks the key"},
    {"DB index is out of range", ErrorKind::unavailable, "the server has no such database"},
    {"invalid DB index", ErrorKind::unavailable, "the server has no such database"},
    {"SELECT is not allowed in cluster", ErrorKind::unavailable, "a Cluster has database 0 only"},
    {"unknown command 'EVAL", ErrorKind::unavailable, no_scripts},
    {"unknown command `EVAL", ErrorKind::unavailable, no_scripts},
    {"unknown command", ErrorKind::unavailable, "the server lacks a command dlock needs"},
    {"max number of clients reached", ErrorKind::unavailable, "the server has too many clients"},
};

bool has_code(std::string_view text, std::string_view code) {
  for (auto at = text.find(code); at != std::string_view::npos; at = text.find(code, at + 1)) {
    const auto end = at + code.size();
    const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '-';
    if (begins && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

Error made(ErrorKind trouble, std::string_view meaning, std::string_view said) {
  // Behind it Redis repeats what it was sent, a password perhaps.
  said = said.substr(0, said.find(", with args beginning with"));
  constexpr std::size_t enough = 200;
  return Error(trouble,
               std::string(meaning) + " (it said: " + escaped(said.substr(0, enough)) + ")");
}

}  // namespace

bool is_of_class(const Reply& reply, std::string_view code) {
  if (!reply.is_error()) return false;
  const std::string_view text = reply.text;
  const bool wrapped = text.starts_with("ERR Error running script");
  return wrapped ? has_code(text, code) : text.substr(0, text.find(' ')) == code;
}

Error server_error(const Reply& reply) {
  const std::string_view text = reply.text;
  for (const Class& each : classes) {
    if (is_of_class(reply, each.code)) return made(each.trouble, each.meaning, text);
  }
  for (const Phrase& phrase : phrases) {
    if (text.find(phrase.text) != std::string_view::npos) {
      return made(phrase.trouble, phrase.meaning, text);
    }
  }
  return made(ErrorKind::unavailable, "the server refused", text);
}

}  // namespace dlock
