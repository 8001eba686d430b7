#include "redis/reply.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

[[noreturn]] void not_redis(const std::string& what) {
  throw_unavailable("the answer is not that of a Redis server (" + what + ")",
                    Cause::other_protocol);
}

/// The meaning of an error reply, recognized by its code or by a part of its text.
struct Meaning {
  std::string_view mark;
  ErrorKind kind;
  std::string_view text;
  Cause cause = Cause::other_reply;
};

constexpr std::string_view redis_cluster =
    "the server is a Cluster node and the key lives on another: write redis+cluster://";

/// Error codes of Redis 6.2 to 8 and Valkey 8 (server.c and others).
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
    {"MOVED", ErrorKind::unavailable, redis_cluster},
    {"ASK", ErrorKind::unavailable, redis_cluster},
    {"CLUSTERDOWN", ErrorKind::unavailable, "the Cluster is down"},
    {"TRYAGAIN", ErrorKind::unavailable, "the Cluster is moving the key"},
};

constexpr std::string_view no_scripts =
    "the server runs no scripts, and a lock of dlock is one: enable EVAL and EVALSHA (Lua), or "
    "write redis+sentinel:// if it is a sentinel";

constexpr std::string_view no_password =
    "the server's default user has no password, but one is set: whose it is stands in the URL, "
    "redis://USER@HOST";

/// Errors without a code of their own.
constexpr Meaning phrases[] = {
    {"AUTH <password> called without", ErrorKind::denied, no_password, Cause::password_unneeded},
    {"can't run this command", ErrorKind::denied,
     "the user may not do this: its ACL lacks a command", Cause::acl},
    {"can't access at least one of the keys", ErrorKind::denied,
     "the user may not do this: its ACL lacks the key", Cause::acl},
    {"can't publish to the channel", ErrorKind::denied,
     "the user may not do this: its ACL lacks the channel", Cause::acl},
    {"DB index is out of range", ErrorKind::unavailable, "the server has no such database",
     Cause::no_such_database},
    {"SELECT is not allowed in cluster", ErrorKind::unavailable, "a Cluster has database 0 only",
     Cause::no_such_database},
    {"unknown command 'EVAL", ErrorKind::unavailable, no_scripts},
    {"unknown command `EVAL", ErrorKind::unavailable, no_scripts},
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

/// The meaning of an error reply; null if no table has it.
const Meaning* meaning_of(const Reply& reply) {
  for (const Meaning& each : codes) {
    if (reply.is_error(each.mark)) return &each;
  }
  for (const Meaning& each : phrases) {
    if (reply.text.find(each.mark) != std::string::npos) return &each;
  }
  return nullptr;
}

Error made(const Meaning* known, std::string_view said) {
  constexpr Meaning unknown{"", ErrorKind::unavailable, "the server refused"};
  const Meaning& meaning = known == nullptr ? unknown : *known;
  // After this phrase Redis repeats the request, perhaps with a password.
  said = said.substr(0, said.find(", with args beginning with"));
  // After " script: " the server names a place in the script, which matters only for errors that
  // dlock does not know.
  if (known != nullptr) said = said.substr(0, said.find(" script: "));
  constexpr std::size_t enough = 200;
  return {meaning.kind,
          std::string(meaning.text) + " (it said: " + escaped(said.substr(0, enough)) + ")",
          meaning.cause};
}

}  // namespace

bool Reply::is_array(std::size_t at_least) const {
  return kind == Kind::array && items.size() >= at_least;
}

Reply in_items(Reply reply) {
  if (reply.kind != Reply::Kind::text) return reply;
  Reply list;
  list.kind = Reply::Kind::array;
  std::string_view left = reply.text;
  while (!left.empty()) {
    list.items.push_back({Reply::Kind::text, std::string(take_until(left, ' ')), 0, {}});
  }
  return list;
}

void ReplyReader::Close::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader() {
  // The parameter types of these functions differ between the versions of hiredis.
  static redisReplyObjectFunctions functions = [] {
    redisReplyObjectFunctions make{};
    make.createString = [](const redisReadTask* task, auto* text, auto size) -> void* {
      Reply* reply = place_of(*task);
      reply->kind = task->type == REDIS_REPLY_ERROR ? Reply::Kind::error : Reply::Kind::text;
      reply->text.assign(text, size);
      return reply;
    };
    make.createArray = [](const redisReadTask* task, auto count) -> void* {
      constexpr std::size_t largest_array = 1024 * 1024;
      const auto elements = static_cast<std::size_t>(count);
      if (elements > largest_array) return nullptr;
      Reply* reply = place_of(*task);
      reply->kind = Reply::Kind::array;
      reply->items.resize(elements);
      return reply;
    };
    make.createInteger = [](const redisReadTask* task, auto integer) -> void* {
      Reply* reply = place_of(*task);
      reply->kind = Reply::Kind::integer;
      reply->integer = integer;
      return reply;
    };
    make.createNil = [](const redisReadTask* task) -> void* { return place_of(*task); };
    make.freeObject = [](void*) {};
    return make;
  }();
  reader_.reset(redisReaderCreateWithFunctions(&functions));
  if (!reader_) throw Error(ErrorKind::host_refused, "out of memory");
  reader_->privdata = &partial_;
}

ReplyReader::~ReplyReader() = default;

Reply* ReplyReader::place_of(const redisReadTask& task) {
  if (task.parent == nullptr) return static_cast<Reply*>(task.privdata);
  return &static_cast<Reply*>(task.parent->obj)->items[static_cast<std::size_t>(task.idx)];
}

void ReplyReader::feed(std::string_view bytes) {
  redisReaderFeed(reader_.get(), bytes.data(), bytes.size());
}

std::optional<Reply> ReplyReader::next() {
  void* complete = nullptr;
  if (redisReaderGetReply(reader_.get(), &complete) != REDIS_OK) {
    not_redis(reader_->err == REDIS_ERR_OOM ? "too many elements" : "it does not speak RESP");
  }
  if (complete == nullptr) return std::nullopt;
  return std::exchange(partial_, {});
}

bool Reply::is_error(std::string_view code) const {
  if (kind != Kind::error || code.empty()) return kind == Kind::error;
  const bool wrapped = text.starts_with("ERR Error running script");
  return wrapped ? has_code(text, code) : std::string_view(text).substr(0, text.find(' ')) == code;
}

Error server_error(const Reply& reply) { return made(meaning_of(reply), reply.text); }

Error server_error(const Reply& reply, const std::string& server) {
  const Error error = server_error(reply);
  return error.reworded(server + ": " + error.what());
}

Error auth_error(const Reply& reply, std::span<const std::string> credentials) {
  const Meaning* known = meaning_of(reply);
  const std::string_view code = std::string_view(reply.text).substr(0, reply.text.find(' '));
  Error error = made(known, known != nullptr ? known->mark : code);
  const bool broken = std::any_of(credentials.begin(), credentials.end(), [](const auto& each) {
    return each.ends_with('\n') || each.ends_with('\r');
  });
  if (!broken || error.cause() != Cause::password_wrong) return error;
  return error.reworded(std::string("the password ends with a line break: ") + error.what());
}

}  // namespace dlock
