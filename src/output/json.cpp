#include "output/json.hpp"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.hpp"

namespace dlock {
namespace {

using Json = nlohmann::ordered_json;

/// Appends the escape of JSON: two surrogates for a code point outside the basic plane.
void append_json_escape(std::string& out, std::uint32_t code_point) {
  constexpr std::uint32_t first_above = 0x10000;
  char text[16];
  if (code_point < first_above) {
    std::snprintf(text, sizeof text, "\\u%04x", code_point);
  } else {
    const std::uint32_t above = code_point - first_above;
    std::snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 | above >> 10,
                  0xDC00 | (above & 0x3FF));
  }
  out += text;
}

/// The JSON as a line. Text from other clients may be invalid UTF-8, which JSON must not contain.
/// It may also control the terminal, by characters that JSON allows unescaped: those are escaped,
/// which does not change the value.
std::string line(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const auto point = first_code_point(rest).value();
    if (shows_as_itself(point.value)) {
      out += rest.substr(0, point.bytes);
    } else {
      append_json_escape(out, point.value);
    }
    rest.remove_prefix(point.bytes);
  }
  return out + "\n";
}

Json limit_json(Limit limit) { return limit.unlimited() ? Json(nullptr) : Json(limit.owners); }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void add_who(Json& json, const Who& who) {
  json["host"] = who.host;
  json["pid"] = who.pid;
  json["user"] = who.user;
  json["command"] = who.command;
  if (who.command_pid != 0) json["command_pid"] = who.command_pid;
  json["label"] = who.label;
}

Json fence_json(Fence fence) { return fence == Fence{} ? Json(nullptr) : Json(fence.value); }

/// The holder's value is all that is known of a lock of another library.
Json foreign_json(const Holder& holder) {
  Json json;
  json["library"] = holder.library;
  json["host"] = holder.who.host.empty() ? Json(nullptr) : Json(holder.who.host);
  const bool told = holder.acquired_at != WallTime{};
  json["acquired_at"] = told ? Json(iso8601(holder.acquired_at)) : Json(nullptr);
  json["lease_left_ms"] = holder.lease_left ? Json(holder.lease_left->count()) : Json(nullptr);
  json["limit"] = limit_json(holder.limit);
  json["fence"] = nullptr;
  return json;
}

Json holder_json(const Holder& holder) {
  if (!holder.library.empty()) return foreign_json(holder);
  Json json;
  json["owner"] = holder.owner;
  add_who(json, holder.who);
  json["acquired_at"] = iso8601(holder.acquired_at);
  json["held_ms"] = holder.held.count();
  json["lease_left_ms"] = holder.lease_left ? Json(holder.lease_left->count()) : Json(nullptr);
  json["limit"] = limit_json(holder.limit);
  json["holds"] = holder.holds;
  json["fence"] = holder.fence.value;
  if (holder.servers > 0) {
    json["held_on"] = holder.held_on;
    json["servers"] = holder.servers;
  }
  return json;
}

Json waiter_json(const Waiter& waiter) {
  Json json;
  json["position"] = waiter.position;
  json["owner"] = waiter.owner;
  add_who(json, waiter.who);
  json["waiting_ms"] = waiter.waiting.count();
  json["limit"] = limit_json(waiter.limit);
  return json;
}

void add_latch(Json& json, const LatchState& state) {
  json["count"] = state.count;
  json["arrived"] = state.arrived;
  json["open"] = state.open();
}

void add_evicted_by(Json& json, const std::optional<Who>& by) {
  if (!by) return;
  json["evicted_by"] = {
      {"host", by->host}, {"pid", by->pid}, {"user", by->user}, {"reason", by->label}};
}

Json locks_json(const std::vector<LockFence>& locks) {
  Json list = Json::array();
  for (const LockFence& lock : locks) {
    list.push_back({{"key", lock.key.text}, {"fence", fence_json(lock.fence)}});
  }
  return list;
}

}  // namespace

std::string key_json(const KeyState& state) {
  Json json;
  json["key"] = state.key.text;
  json["holders"] = Json::array();
  for (const Holder& holder : state.holders) json["holders"].push_back(holder_json(holder));
  json["waiters"] = Json::array();
  for (const Waiter& waiter : state.waiters) json["waiters"].push_back(waiter_json(waiter));
  if (state.latch) {
    add_latch(json["latch"], *state.latch);
    json["latch"]["left_ms"] = state.latch->left.count();
  }
  if (state.last) {
    Json& last = json["last"];
    add_who(last, state.last->who);
    last["acquired_at"] = iso8601(state.last->acquired_at);
    last["fence"] = state.last->fence.value;
  }
  return line(json);
}

std::string kind_json(const KindRow& row) {
  Json json;
  json["key"] = row.key;
  json["library"] = row.library;
  json["kind"] = row.kind;
  const Json holder = holder_json(row.holder);
  for (const auto& [name, value] : holder.items()) {
    if (name != "library") json[name] = value;
  }
  return line(json);
}

std::string grant_json(const Token& token, milliseconds ttl, const std::vector<LockFence>& locks) {
  Json json;
  json["token"] = token.text;
  json["ttl_ms"] = ttl.count();
  json["locks"] = locks_json(locks);
  return line(json);
}

std::string renewed_json(const LockKey& key, const std::optional<Grant>& grant,
                         const std::optional<Who>& evicted_by) {
  Json json;
  json["key"] = key.text;
  json["renewed"] = grant.has_value();
  if (grant) {
    json["ttl_ms"] = grant->lease.length.count();
    json["fence"] = fence_json(grant->fence);
  }
  add_evicted_by(json, evicted_by);
  return line(json);
}

std::string released_json(const LockKey& key, bool released, const std::optional<Who>& evicted_by) {
  Json json;
  json["key"] = key.text;
  json["released"] = released;
  add_evicted_by(json, evicted_by);
  return line(json);
}

std::string evicted_json(const LockKey& key, const std::vector<Holder>& evicted) {
  Json json;
  json["key"] = key.text;
  json["released"] = !evicted.empty();
  json["evicted"] = Json::array();
  for (const Holder& holder : evicted) json["evicted"].push_back(holder_json(holder));
  return line(json);
}

std::string latch_json(const LockKey& key, const LatchState& state) {
  Json json;
  json["key"] = key.text;
  add_latch(json, state);
  return line(json);
}

std::string status_json(const RunStatus& status) {
  Json json;
  json["outcome"] = status.outcome;
  json["exit_code"] = status.exit_code;
  json["child_exit"] = or_null(status.child_exit);
  json["child_signal"] = or_null(status.child_signal);
  json["reason"] = status.reason.empty() ? Json(nullptr) : Json(status.reason);
  if (status.lost) json["lost"] = true;
  add_evicted_by(json, status.evicted_by);
  json["locks"] = locks_json(status.locks);
  json["waited_ms"] = status.waited.count();
  json["held_ms"] = status.held.count();
  return line(json);
}

}  // namespace dlock
