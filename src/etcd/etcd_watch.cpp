#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "etcd/etcd_backend.hpp"

namespace dlock {

void EtcdBackend::open_watch(const Keys& keys, std::int64_t after) {
  std::string body;
  for (const RecordWatch::Other& each : keys) {
    nlohmann::json fields = {{"key", to_base64(each.life)},
                             {"start_revision", std::to_string(after + 1)}};
    if (each.only_end) fields["filters"] = {"NOPUT"};
    body += nlohmann::json{{"create_request", fields}}.dump() + "\n";
  }
  events_.clear();
  watch_answered_ = false;
  watched_ = keys;
  client_.open_stream("watch", body);
}

bool EtcdBackend::take_line(const std::string& line) {
  const auto answer = parse_answer(line);
  if (!answer) throw_unavailable(client_.name() + ": an answer that is not etcd's");
  if (answer->code != EtcdCode::ok) {
    client_.close_stream();
    if (answer->code == EtcdCode::unavailable) return false;
    client_.refuse(*answer);
  }
  watch_answered_ = true;
  if (is_true(answer->fields, "canceled")) {
    client_.close_stream();
    const std::string reason = text_at(answer->fields, "/cancel_reason");
    if (reason.find("permission denied") != std::string::npos) {
      client_.refuse({EtcdCode::permission_denied, reason});
    }
    return false;
  }
  for (EtcdEvent& event : events_in(answer->fields)) events_.push_back(std::move(event));
  return true;
}

std::variant<EtcdEvent, Wake::Reason> EtcdBackend::next_change(const Keys& keys, std::int64_t after,
                                                               Deadline until, int cancel_fd) {
  if (!client_.has_stream() || watched_ != keys) open_watch(keys, after);
  for (bool again = false;; again = true) {
    while (!events_.empty()) {
      EtcdEvent event = std::move(events_.front());
      events_.pop_front();
      if (event.revision > after) return event;
    }
    if (const auto why = again ? end_of_sleep(until, cancel_fd) : std::nullopt) return *why;
    const auto line = client_.next_line(until, cancel_fd);
    if (const auto* text = std::get_if<std::string>(&line)) {
      if (!text->empty() && !take_line(*text)) return Wake::Reason::changed;
      continue;
    }
    switch (std::get<HttpClient::StreamEnd>(line)) {
      case HttpClient::StreamEnd::due:
        return Wake::Reason::due;
      case HttpClient::StreamEnd::interrupted:
        return Wake::Reason::interrupted;
      case HttpClient::StreamEnd::broken:
        break;
    }
    // The client checks for missed changes, and asks the next server.
    if (watch_answered_) return Wake::Reason::changed;
    throw_unavailable(client_.name() + ": the server that was watched has gone");
  }
}

/// After an event of another life, waits until `end` for a message to the client's own life: etcd
/// does not always report changes in the order in which they were written.
std::optional<std::string> EtcdBackend::message_beside(const Keys& keys, std::int64_t after,
                                                       Deadline end, int cancel_fd) {
  while (true) {
    const auto change = next_change(keys, after, end, cancel_fd);
    const auto* event = std::get_if<EtcdEvent>(&change);
    if (event == nullptr) return std::nullopt;
    const bool is_own = event->key == keys.front().life && !event->value.empty();
    if (is_own && !event->deleted) return event->value;
  }
}

std::variant<std::string, Wake::Reason> EtcdBackend::watch(RecordWatch& watch, Deadline until,
                                                           int cancel_fd) {
  const bool whole_record = watch.own.empty();
  const auto key_of = [&](const std::string& life) { return watch.record + "\n" + life; };
  Keys keys{{whole_record ? watch.record : key_of(watch.own)}};
  for (const auto& other : watch.others) keys.push_back({key_of(other.life), other.only_end});
  while (true) {
    auto change = next_change(keys, watch.after, until, cancel_fd);
    if (const auto* why = std::get_if<Wake::Reason>(&change)) return *why;
    EtcdEvent& event = std::get<EtcdEvent>(change);
    if (whole_record) {
      watch.after = event.revision;
      return Wake::Reason::changed;
    }
    // A life begins with an empty value, which is no message.
    if (!event.deleted && event.value.empty()) {
      if (const auto why = end_of_sleep(until, cancel_fd)) return *why;
      continue;
    }
    if (!event.deleted && event.key == keys.front().life) return std::move(event.value);
    if (event.key == keys.front().life) return Wake::Reason::changed;
    // Waiters that are granted the lock together are notified one after another.
    const milliseconds moment(event.deleted ? 5 : 500);
    const Deadline end = std::min(until, later(BootClock::now(), moment));
    if (auto message = message_beside(keys, watch.after, end, cancel_fd)) return *message;
    return Wake::Reason::changed;
  }
}

}  // namespace dlock
