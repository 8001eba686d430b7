#include "output/json.hpp"

#include <nlohmann/json.hpp>

#include "output/screen.hpp"

namespace dlock {
namespace {

using Json = nlohmann::ordered_json;

/// The JSON as a line. Text from other clients may be invalid UTF-8, which JSON must not contain.
/// It may also control the terminal, by characters that JSON allows unescaped: then this escapes
/// all but ASCII, which does not change the value.
std::string line(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!is_plain_text(text)) text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text + "\n";
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

/// Adds the client that evicted a hold, or asked its holder to stop.
void add_by(Json& json, const char* name, const std::optional<Who>& by) {
  if (!by) return;
  json[name] = {{"host", by->host}, {"pid", by->pid}, {"user", by->user}, {"reason", by->label}};
}

Json lease_json(const Holder& holder) {
  return holder.lease_left ? Json(holder.lease_left->count()) : Json(nullptr);
}

Json fence_json(Fence fence) { return fence == Fence{} ? Json(nullptr) : Json(fence.value); }

/// dlock knows a lock of another library only by the value that its holder stored.
Json foreign_json(const Holder& holder) {
  const bool told = holder.acquired_at != WallTime{};
  return {{"library", holder.library},
          {"host", holder.who.host.empty() ? Json(nullptr) : Json(holder.who.host)},
          {"acquired_at", told ? Json(iso8601(holder.acquired_at)) : Json(nullptr)},
          {"lease_left_ms", lease_json(holder)},
          {"limit", limit_json(holder.limit)},
          {"fence", nullptr}};
}

Json holder_json(const Holder& holder) {
  if (!holder.library.empty()) return foreign_json(holder);
  Json json;
  json["owner"] = holder.owner;
  add_who(json, holder.who);
  json["acquired_at"] = iso8601(holder.acquired_at);
  json["held_ms"] = holder.held.count();
  json["lease_left_ms"] = lease_json(holder);
  json["ttl_ms"] = holder.lease_left ? Json(holder.ttl.count()) : Json(nullptr);
  json["renewed_ms_ago"] = holder.lease_left ? Json(holder.renewed_ago.count()) : Json(nullptr);
  json["via"] = name_of(holder.who.via);
  json["mode"] = mode_of({&holder, 1});
  if (holder.kept) json["cooldown_left_ms"] = lease_json(holder);
  if (holder.orphan != 0)
    json["orphan"] = {{"pid", holder.orphan}, {"command", holder.orphan_name}};
  json["limit"] = limit_json(holder.limit);
  json["holds"] = holder.holds;
  json["fence"] = holder.fence.value;
  add_by(json, "stop_asked_by", holder.stop_asked_by);
  if (holder.servers > 0) {
    json["held_on"] = holder.held_on;
    json["servers"] = holder.servers;
  }
  return json;
}

Json waiter_json(const Waiter& waiter) {
  Json json{{"position", waiter.position}, {"owner", waiter.owner}};
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

/// Adds who has the key in place of the client that gave up.
void add_refusal(Json& json, const GaveUp& gave_up) {
  const Refusal& refusal = gave_up.refusal;
  const bool superseded = refusal.why == Refusal::Reason::superseded;
  json["key"] = gave_up.key.text;
  json["holders"] = Json::array();
  for (const Holder& holder : refusal.held_by) {
    if (!superseded) json["holders"].push_back(holder_json(holder));
  }
  json["waiters"] = refusal.waiting;
  json["superseded_by"] = nullptr;
  if (superseded && !refusal.held_by.empty()) {
    Json& newer = json["superseded_by"];
    newer["owner"] = refusal.held_by.front().owner;
    add_who(newer, refusal.held_by.front().who);
  }
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
  Json json{{"key", state.key.text}, {"holders", Json::array()}, {"waiters", Json::array()}};
  for (const Holder& holder : state.holders) json["holders"].push_back(holder_json(holder));
  for (const Waiter& waiter : state.waiters) json["waiters"].push_back(waiter_json(waiter));
  if (state.latch) {
    add_latch(json["latch"], *state.latch);
    json["latch"]["left_ms"] = state.latch->left.count();
  }
  if (state.last) {
    Json& last = json["last"];
    add_who(last, state.last->who);
    last["via"] = name_of(state.last->who.via);
    last["acquired_at"] = iso8601(state.last->acquired_at);
    last["fence"] = state.last->fence.value;
    const auto& end = state.last->end;
    last["how"] = !end ? "lost" : end->evicted_by ? "evicted" : "released";
    last["ended_at"] = end ? Json(iso8601(end->at)) : Json(nullptr);
    last["exit_code"] = end ? or_null(end->exit_code) : Json(nullptr);
    if (end) add_by(last, "evicted_by", end->evicted_by);
  }
  return line(json);
}

std::string kind_json(const KindRow& row) {
  Json json{{"key", row.key}, {"library", row.library()}, {"kind", row.kind}};
  const Json holder = holder_json(row.holder);
  for (const auto& [name, value] : holder.items()) {
    if (name != "library") json[name] = value;
  }
  return line(json);
}

std::string grant_json(const Token& token, const Owner& owner, milliseconds ttl,
                       milliseconds waited, const std::vector<LockFence>& locks) {
  return line({{"token", token.text},
               {"owner", owner.text},
               {"ttl_ms", ttl.count()},
               {"waited_ms", waited.count()},
               {"locks", locks_json(locks)}});
}

std::string refused_json(const GaveUp& gave_up, const std::string& reason) {
  Json json{{"token", nullptr}, {"reason", reason}};
  add_refusal(json, gave_up);
  return line(json);
}

std::string renewed_json(const LockKey& key, const Renewed& renewed) {
  Json json{{"key", key.text}, {"renewed", renewed.grant.has_value()}};
  if (renewed.grant) {
    json["ttl_ms"] = renewed.grant->lease.length.count();
    json["fence"] = fence_json(renewed.grant->fence);
  }
  add_by(json, "evicted_by", renewed.evicted_by);
  add_by(json, "stop_asked_by", renewed.stop_asked_by);
  return line(json);
}

std::string released_json(const LockKey& key, bool released, const std::optional<Who>& evicted_by) {
  Json json{{"key", key.text}, {"released", released}};
  add_by(json, "evicted_by", evicted_by);
  return line(json);
}

std::string evicted_json(const LockKey& key, const std::vector<Holder>& evicted) {
  Json json{{"key", key.text}, {"released", !evicted.empty()}, {"evicted", Json::array()}};
  for (const Holder& holder : evicted) json["evicted"].push_back(holder_json(holder));
  return line(json);
}

std::string stop_json(const LockKey& key, const std::vector<Holder>& asked) {
  Json json{{"key", key.text}, {"asked", Json::array()}, {"cannot_be_asked", Json::array()}};
  for (const Holder& holder : asked) {
    json[holder.hears_requests() ? "asked" : "cannot_be_asked"].push_back(holder_json(holder));
  }
  return line(json);
}

std::string latch_json(const LockKey& key, const LatchState& state) {
  Json json{{"key", key.text}};
  add_latch(json, state);
  return line(json);
}

std::string status_json(const RunStatus& status) {
  Json json{{"outcome", status.outcome},
            {"exit_code", status.exit_code},
            {"child_exit", or_null(status.child_exit)},
            {"child_signal", or_null(status.child_signal)},
            {"reason", status.reason.empty() ? Json(nullptr) : Json(status.reason)}};
  if (status.lost) json["lost"] = true;
  add_by(json, "evicted_by", status.evicted_by);
  add_by(json, "stop_asked_by", status.stop_asked_by);
  if (status.gave_up) add_refusal(json, *status.gave_up);
  json["locks"] = locks_json(status.locks);
  json["waited_ms"] = status.waited.count();
  json["held_ms"] = status.held.count();
  return line(json);
}

}  // namespace dlock
