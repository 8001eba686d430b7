#include "etcd/etcd_json.hpp"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// The field `name`, or an empty object if there is no such field, as in another product's answer.
const json& member(const json& object, const char* name) {
  static const json nothing = json::object();
  if (!object.is_object()) return nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

EtcdEntry entry_from(const json& kv) {
  return {from_base64(text_at(kv, "/key")), from_base64(text_at(kv, "/value")),
          number_in(kv, "lease"), number_in(kv, "mod_revision")};
}

EtcdAnswer error_from(const json& error, std::string message) {
  EtcdAnswer answer{EtcdCode::unavailable, std::move(message)};
  for (const char* name : {"code", "grpc_code"}) {
    const json& code = member(error, name);
    if (code.is_number_integer() && code != 0) answer.code = static_cast<EtcdCode>(code.get<int>());
  }
  return answer;
}

}  // namespace

std::optional<EtcdAnswer> parse_answer(std::string_view text) {
  json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object()) return std::nullopt;
  const json& error = member(parsed, "error");
  if (error.is_string()) return error_from(parsed, error);
  if (parsed.contains("error")) return error_from(error, text_at(error, "/message"));
  // An error of etcd 3.6 has no field `error`.
  if (member(parsed, "code").is_number()) return error_from(parsed, text_at(parsed, "/message"));
  const auto result = parsed.find("result");
  return EtcdAnswer{EtcdCode::ok, "", std::move(result != parsed.end() ? *result : parsed)};
}

bool is_true(const json& object, const char* name) { return member(object, name) == true; }

std::int64_t number_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (value.is_number_integer()) return value.get<std::int64_t>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const bool negative = text.starts_with('-');
  const auto digits = std::string_view(text).substr(negative ? 1 : 0);
  const auto number = parse_number(digits, 0, INT64_MAX).value_or(0);
  return negative ? -number : number;
}

milliseconds span_in(const json& object, const char* name) {
  const std::int64_t longest = longest_span / std::chrono::seconds(1);
  return std::chrono::seconds(std::clamp<std::int64_t>(number_in(object, name), 0, longest));
}

std::int64_t revision_in(const json& answer) {
  return number_in(member(answer, "header"), "revision");
}

EtcdRange range_in(const json& answer) {
  EtcdRange range;
  for (const json& kv : member(answer, "kvs")) range.entries.push_back(entry_from(kv));
  range.more = is_true(answer, "more");
  range.count = number_in(answer, "count");
  return range;
}

EtcdRange first_range_in(const json& answer) {
  const json& parts = member(answer, "responses");
  return range_in(parts.empty() ? parts : member(parts.front(), "response_range"));
}

json range_fields(std::string_view from, std::string_view end) {
  return {{"key", to_base64(from)}, {"range_end", to_base64(end)}};
}

std::string end_of_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == UCHAR_MAX) end.pop_back();
  // A zero byte as the end means: up to the last key.
  if (end.empty()) return std::string(1, '\0');
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

json unchanged_since(std::string_view key, std::int64_t revision) {
  return {{"key", to_base64(key)},
          {"target", "MOD"},
          {"result", "EQUAL"},
          {"mod_revision", std::to_string(revision)}};
}

json put_operation(std::string_view key, std::string_view value) {
  return {{"request_put", {{"key", to_base64(key)}, {"value", to_base64(value)}}}};
}

json delete_operation(std::string_view key) {
  return {{"request_delete_range", {{"key", to_base64(key)}}}};
}

std::vector<EtcdEvent> events_in(const json& answer) {
  std::vector<EtcdEvent> events;
  for (const json& event : member(answer, "events")) {
    EtcdEntry entry = entry_from(member(event, "kv"));
    events.push_back({std::move(entry.key), std::move(entry.value), entry.version,
                      member(event, "type") == "DELETE"});
  }
  return events;
}

}  // namespace dlock
