#include "k8s/kube_backend.hpp"

#include <algorithm>
#include <chrono>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"
#include "rule/table_format.hpp"

namespace dlock {
namespace {

using nlohmann::json;

constexpr const char* leases_of = "/apis/coordination.k8s.io/v1/namespaces/";
constexpr const char* managed_by_dlock = "app.kubernetes.io%2Fmanaged-by%3Ddlock";
constexpr int page_size = 250;
/// The Date of an answer is cut off to whole seconds, and the clocks of two API servers may differ
/// by one more.
constexpr milliseconds clock_unsure{2000};
/// A stream that ends at once is opened again after this time.
constexpr milliseconds shortest_stream{1000};

/// One of 16 parts of all records: a sweep looks at one of them.
std::string shard_of(const std::string& name) { return plain_name(name, "").substr(15); }

/// The form of times in a Lease, to the microsecond.
std::string micro_time(microseconds at) {
  std::string text = iso8601(WallTime(at));
  return text.insert(text.size() - 1, "000");
}

/// The fields of a Lease that `kubectl get leases` and other tools show: the first holder.
json spec_of(const std::string& record, const std::string& where) {
  json spec = json::object();
  const LockTable table = parse_record(record, where).table;
  const auto first = std::find_if(table.holds.begin(), table.holds.end(),
                                  [](const HoldEntry& hold) { return hold.inside(); });
  if (first == table.holds.end()) return spec;
  const Who& who = first->who;
  spec["holderIdentity"] = who.user + "@" + who.host + " pid " + std::to_string(who.pid) +
                           (who.command.empty() ? "" : " (" + who.command + ")");
  spec["leaseDurationSeconds"] = std::chrono::ceil<std::chrono::seconds>(first->lease).count();
  spec["acquireTime"] = micro_time(first->since);
  spec["renewTime"] = micro_time(first->at);
  return spec;
}

Version version_of(const json& lease) {
  return parse_number(text_at(lease, "/metadata/resourceVersion"), 1, INT64_MAX).value_or(0);
}

std::string record_in(const json& lease) {
  return text_at(lease, "/metadata/annotations/dlock~1record");
}
std::string name_in(const json& lease) {
  return text_at(lease, "/metadata/annotations/dlock~1name");
}

}  // namespace

std::string KubeBackend::lease_name(const std::string& record) const {
  std::string_view rest = record;
  if (rest.starts_with(prefix_)) rest.remove_prefix(prefix_.size());
  const auto kind = take_until(rest, ':');
  return plain_name(record, kind == "k" ? rest : record.substr(prefix_.size()));
}

std::string KubeBackend::path_of(const std::string& name_of_lease,
                                 const CallOptions& call_options) {
  if (name_space_.empty()) name_space_ = client_.cluster(call_options).name_space;
  const std::string all = leases_of + name_space_ + "/leases";
  return name_of_lease.empty() ? all : all + "/" + name_of_lease;
}

Snapshot KubeBackend::snapshot_from(const json& lease) const {
  Snapshot seen = dated(clock_unsure);
  seen.version = version_of(lease);
  seen.text = record_in(lease);
  if (seen.version == 0 || !take_end(seen.text)) {
    throw_no_record(name() + ": the Lease " + escaped(text_at(lease, "/metadata/name")));
  }
  return seen;
}

Version KubeBackend::note(const std::string& name, const json& lease) {
  seen_[name] = {version_of(lease), text_at(lease, "/metadata/uid")};
  return seen_[name].version;
}

Snapshot KubeBackend::read(const std::string& name, OwnLife*, const CallOptions& call_options) {
  const auto answer = client_.ask({"GET", path_of(lease_name(name), call_options)}, call_options);
  if (answer.is_missing()) {
    seen_[name].version = 0;
    return dated(clock_unsure);
  }
  note(name, answer.object);
  return snapshot_from(answer.object);
}

Snapshot KubeBackend::look(const std::string& name, const CallOptions& call_options) {
  const auto event = std::exchange(event_, std::nullopt);
  return event && watched_ == name ? *event : read(name, nullptr, call_options);
}

json KubeBackend::lease_with(const std::string& name, const Snapshot& over,
                             const Update& update) const {
  // dlock counts the arrivals at a latch by this label.
  const std::string group = short_name(name.substr(0, name.rfind(':') + 1));
  json metadata = {{"name", lease_name(name)},
                   {"labels",
                    {{"app.kubernetes.io/managed-by", "dlock"},
                     {"dlock/group", group},
                     {"dlock/shard", shard_of(name)}}},
                   {"annotations", {{"dlock/name", name}, {"dlock/record", value_of(update)}}}};
  if (over.version != 0) {
    metadata["resourceVersion"] = std::to_string(over.version);
    // Without it, the server would create a Lease that has been removed meanwhile.
    metadata["uid"] = seen_.at(name).uid;
  }
  const bool is_lock = name.starts_with(prefix_ + "k:");
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", metadata},
          {"spec", is_lock ? spec_of(update.text, this->name()) : json::object()}};
}

std::variant<Version, Snapshot> KubeBackend::write(const std::string& name, const Snapshot& over,
                                                   const Update& update,
                                                   const CallOptions& call_options) {
  const bool is_new = over.version == 0;
  const std::string path = path_of(is_new ? "" : lease_name(name), call_options);
  const auto answer =
      client_.ask({is_new ? "POST" : "PUT", path, lease_with(name, over, update)}, call_options);
  if (is_new && answer.is_missing()) {
    throw_usage(this->name() + ": " + escaped(text_at(answer.object, "/message")) +
                ": name one that exists, k8s://NAMESPACE");
  }
  if (answer.conflicts() || answer.is_missing()) return read(name, nullptr, call_options);
  return note(name, answer.object);
}

template <typename Take>
void KubeBackend::for_each(const std::string& selector, int pages, const CallOptions& call_options,
                           const Take& take) {
  const std::string query = path_of("", call_options) + "?labelSelector=" + managed_by_dlock +
                            selector + "&limit=" + std::to_string(page_size);
  std::string next;
  do {
    const auto answer =
        client_.ask({"GET", query + (next.empty() ? "" : "&continue=" + next)}, call_options);
    for (const json& lease : answer.object.value("items", json::array())) take(lease);
    next = percent_encoded(text_at(answer.object, "/metadata/continue"), "&=+/#?");
  } while (!next.empty() && --pages > 0);
}

/// Returns all in one page: the server knows no order of the records' names.
RecordPage KubeBackend::list(const std::string& prefix, const std::string& after,
                             const CallOptions& call_options) {
  RecordPage page;
  const auto take = [&](const json& lease) {
    const std::string name = name_in(lease);
    const bool is_asked_for = name.starts_with(prefix) && name > after;
    if (is_asked_for && record_in(lease).starts_with(first_word_of_value)) {
      page.records.push_back({name, snapshot_from(lease)});
    }
  };
  for_each("", INT_MAX, call_options, take);
  std::sort(page.records.begin(), page.records.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return page;
}

std::int64_t KubeBackend::count(const std::string& prefix, const CallOptions& call_options) {
  std::int64_t records = 0;
  for_each("%2Cdlock%2Fgroup%3D" + short_name(prefix), INT_MAX, call_options,
           [&](const json&) { ++records; });
  return records;
}

void KubeBackend::sweep(const std::string& prefix, const std::string& after,
                        const CallOptions& call_options) {
  std::vector<json> expired;
  const auto take = [&](const json& lease) {
    std::string record = record_in(lease);
    const auto ends = take_end(record);
    if (ends && *ends < dated(clock_unsure).clock && name_in(lease).starts_with(prefix)) {
      expired.push_back(lease);
    }
  };
  for_each("%2Cdlock%2Fshard%3D" + shard_of(after), 1, call_options, take);
  for (const json& lease : expired) {
    const json version = {{"resourceVersion", text_at(lease, "/metadata/resourceVersion")}};
    client_.ask({"DELETE",
                 path_of(text_at(lease, "/metadata/name"), call_options),
                 {{"preconditions", version}}},
                call_options);
  }
}

void KubeBackend::open_watch(const std::string& name, Deadline until, int cancel_fd) {
  const CallOptions call_options{until, cancel_fd};
  stream_opened_ = BootClock::now();
  watched_ = name;
  client_.open_stream(path_of("", call_options) + "?watch=1&fieldSelector=metadata.name%3D" +
                          lease_name(name) +
                          "&resourceVersion=" + std::to_string(seen_[name].version),
                      call_options);
}

bool KubeBackend::take_event(const std::string& line) {
  json event = json::parse(line, nullptr, false);
  if (!event.is_object()) event = json::object();
  const json object = event.value("object", json::object());
  const json& status = event.contains("type") ? object : event;
  if (text_at(status, "/kind") == "Status") {
    client_.close_stream();
    const long code = status.value("code", 0);
    constexpr long gone = 410, unauthorized = 401;
    // Otherwise the read that follows logs in anew.
    if (code != gone && code != unauthorized) client_.refuse(code, status);
    return true;
  }
  if (version_of(object) <= seen_[watched_].version) return false;
  note(watched_, object);
  if (text_at(event, "/type") != "DELETED") event_ = snapshot_from(object);
  return true;
}

std::variant<std::string, Wake::Reason> KubeBackend::watch(RecordWatch& watch, Deadline until,
                                                           int cancel_fd) {
  event_.reset();
  if (!client_.has_stream() || watched_ != watch.record) {
    open_watch(watch.record, until, cancel_fd);
  }
  while (true) {
    const auto line = client_.next_line(until, cancel_fd);
    if (const auto* text = std::get_if<std::string>(&line)) {
      if (text->empty() || !take_event(*text)) continue;
      return Wake::Reason::changed;
    }
    const auto end = std::get<HttpClient::StreamEnd>(line);
    if (end == HttpClient::StreamEnd::due) return Wake::Reason::due;
    if (end == HttpClient::StreamEnd::interrupted) return Wake::Reason::interrupted;
    // The server ends streams now and then. Read what may have been missed, and watch again.
    const Deadline again = std::min(until, later(stream_opened_, shortest_stream));
    if (sleep_until(again, cancel_fd)) return Wake::Reason::interrupted;
    return Wake::Reason::changed;
  }
}

void KubeBackend::close() {
  client_.close();
  event_.reset();
}

}  // namespace dlock
