#include "etcd/etcd_json.hpp"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/duration.hpp"
#include "etcd/base64.hpp"
#include "lock/store.hpp"

namespace dlock {
namespace {

using nlohmann::json;

const json nothing = json::object();

const json& member(const json& object, const char* name) {
  if (!object.is_object()) return nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

std::string bytes_in(const json& object, const char* name) {
  const json& text = member(object, name);
  return text.is_string() ? from_base64(text.get_ref<const std::string&>()).value_or("") : "";
}

EtcdEntry entry_from(const json& kv) {
  return {bytes_in(kv, "key"), bytes_in(kv, "value"), number_in(kv, "lease"),
          number_in(kv, "mod_revision")};
}

}  // namespace

std::string text_of(const json& object, const char* name) {
  const json& text = member(object, name);
  constexpr std::size_t longest = 1'000;
  return text.is_string() ? text.get_ref<const std::string&>().substr(0, longest) : "";
}

bool is_true(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_boolean() && value.get<bool>();
}

std::int64_t number_in(const json& object, const char* name) {
  const json& value = member(object, name);
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_string()) return 0;
  std::string_view text = value.get_ref<const std::string&>();
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const auto number = parse_number(text, 0, INT64_MAX).value_or(0);
  return negative ? -number : number;
}

std::optional<milliseconds> span_in(const json& object, const char* name) {
  const auto seconds = std::max<std::int64_t>(0, number_in(object, name));
  if (seconds > longest_span / std::chrono::seconds(1)) return std::nullopt;
  return std::chrono::seconds(seconds);
}

std::int64_t revision_in(const json& answer) {
  return number_in(member(answer, "header"), "revision");
}

EtcdRange range_in(const json& answer) {
  EtcdRange range;
  const json& kvs = member(answer, "kvs");
  range.entries.reserve(kvs.size());
  for (const json& kv : kvs) range.entries.push_back(entry_from(kv));
  range.more = is_true(answer, "more");
  range.count = number_in(answer, "count");
  return range;
}

const json& part_of(const json& answer, std::size_t index, const char* name) {
  const json& parts = member(answer, "responses");
  return parts.is_array() && index < parts.size() ? member(parts[index], name) : nothing;
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

json put_operation(std::string_view key, std::string_view value) {
  return {{"request_put", {{"key", to_base64(key)}, {"value", to_base64(value)}}}};
}

json delete_operation(std::string_view key) {
  return {{"request_delete_range", {{"key", to_base64(key)}}}};
}

std::vector<EtcdEvent> events_in(const json& answer) {
  std::vector<EtcdEvent> events;
  const json& told = member(answer, "events");
  events.reserve(told.size());
  for (const json& event : told) {
    EtcdEntry entry = entry_from(member(event, "kv"));
    const json& type = member(event, "type");
    events.push_back(
        {std::move(entry.key), std::move(entry.value), entry.version, type == "DELETE"});
  }
  return events;
}

}  // namespace dlock
