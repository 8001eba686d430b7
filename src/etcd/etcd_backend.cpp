#include "etcd/etcd_backend.hpp"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// Separates the name of a record from that of its life; no key of a lock contains it.
constexpr char before_life = '\n';
constexpr char after_lives = '\n' + 1;
/// etcd accepts at most 128 operations in a transaction.
constexpr std::size_t most_operations = 120;
constexpr int page_size = 500;
constexpr int records_per_sweep = 50;

std::string life_key(const std::string& name, const std::string& life) {
  return name + before_life + life;
}

/// The keys of a record and of its lives.
json record_range(const std::string& name) { return range_fields(name, name + after_lives); }

/// Adds a life to the record of that name, which is one of the last in `records`. Ignores the life
/// if its record was on an earlier page.
void add_life(std::vector<NamedRecord>& records, const std::string& name, std::string life,
              std::int64_t lease) {
  const auto record = std::find_if(records.rbegin(), records.rend(),
                                   [&](const auto& each) { return each.name == name; });
  if (record != records.rend()) record->seen.lives->ids.emplace(std::move(life), lease);
}

/// Whether the entry is a record. A list skips foreign data, which is an error only for a read of
/// that key.
bool is_record(const EtcdEntry& entry) {
  return entry.key.find(before_life) == std::string::npos &&
         entry.value.starts_with(first_word_of_value);
}

/// The client chooses the ids of its leases, so that it can repeat a request for one.
std::int64_t random_lease_id() {
  std::int64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof id, 0) != sizeof id) throw_errno("getrandom");
    id &= INT64_MAX;
  }
  return id;
}

EtcdRequest about_lease(const char* path, std::int64_t id) {
  return {path, {{"ID", std::to_string(id)}}};
}

std::int64_t whole_seconds(milliseconds span) {
  return std::chrono::ceil<std::chrono::seconds>(span).count();
}

/// Requests a new lease with the id of `lease`. etcd grants whole seconds.
EtcdRequest grant_request(const EngineLease& lease) {
  EtcdRequest request = about_lease("lease/grant", lease.id);
  request.fields["TTL"] = std::to_string(whole_seconds(lease.asked));
  return request;
}

}  // namespace

microseconds EtcdBackend::clock_of(microseconds ends, std::int64_t lease,
                                   const CallOptions& call_options) {
  return ends - left_of({lease}, call_options).front().left;
}

Snapshot EtcdBackend::snapshot_from(const std::string& name, std::int64_t revision,
                                    const EtcdRange& range, Deadline sent,
                                    const CallOptions& call_options) {
  Snapshot seen;
  seen.sent = sent;
  // This clock serves only tickets and display: the lives decide which entries are valid.
  seen.clock = wall_now().time_since_epoch();
  seen.revision = revision;
  seen.lives.emplace(Lives{Lives::Of::entries});
  const std::string before_lives = name + before_life;
  for (const EtcdEntry& entry : range.entries) {
    if (entry.key.starts_with(before_lives)) {
      seen.lives->ids.emplace(entry.key.substr(before_lives.size()), entry.lease);
    }
    if (entry.key != name) continue;
    seen.version = entry.version;
    seen.text = entry.value;
    const auto ends = take_end(seen.text);
    if (!ends) throw_no_record(this->name() + ": the key " + escaped(name));
    if (entry.lease != 0) seen.clock = clock_of(*ends, entry.lease, call_options);
  }
  return seen;
}

Snapshot EtcdBackend::read(const std::string& name, OwnLife* own, const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  EngineLease next = own == nullptr ? EngineLease{} : own->lease;
  const bool is_new = next.id == 0 && next.asked > milliseconds(0);
  if (is_new) next.id = random_lease_id();
  std::vector<EtcdRequest> requests{{"kv/range", record_range(name)}};
  if (next.id != 0) {
    requests.push_back(is_new ? grant_request(next) : about_lease("lease/keepalive", next.id));
  }
  const auto answers = client_.ask(requests, call_options);
  if (next.id != 0) {
    is_new ? take_grant(next, answers.back()) : take_lease(next, answers.back());
    next.sent = sent;
    own->lease = next;
  }
  if (answers.front().code != EtcdCode::ok) client_.refuse(answers.front());
  const json& fields = answers.front().fields;
  return snapshot_from(name, revision_in(fields), range_in(fields), sent, call_options);
}

std::vector<json> EtcdBackend::operations(const std::string& name, const Snapshot& over,
                                          const Update& update, const CallOptions& call_options) {
  json put = put_operation(name, value_of(update));
  if (update.lasts) {
    put["request_put"]["lease"] = std::to_string(grant(*update.lasts, call_options).id);
  } else if (over.version != 0) {
    put["request_put"]["ignore_lease"] = true;
  }
  std::vector<json> all{std::move(put)};
  for (const auto& [life, lease] : update.begun) {
    json begin = put_operation(life_key(name, life), "");
    begin["request_put"]["lease"] = std::to_string(lease);
    all.push_back(std::move(begin));
  }
  for (const Wakeup& wakeup : update.wakeups) {
    // A message to all is not written to a life: its receivers watch the record.
    if (!over.lives->contains(wakeup.to)) continue;
    json wake = put_operation(life_key(name, wakeup.to), wakeup.message);
    wake["request_put"]["ignore_lease"] = true;
    all.push_back(std::move(wake));
  }
  for (const std::string& life : update.ended) {
    all.push_back(delete_operation(life_key(name, life)));
  }
  return all;
}

std::variant<Version, Snapshot> EtcdBackend::write(const std::string& name, const Snapshot& over,
                                                   const Update& update,
                                                   const CallOptions& call_options) {
  auto all = operations(name, over, update, call_options);
  std::vector<json> more;
  if (all.size() > most_operations) {
    more.assign(all.begin() + most_operations, all.end());
    all.resize(most_operations);
  }
  const EtcdRequest transaction{"kv/txn",
                                {{"compare", {unchanged_since(name, over.version)}},
                                 {"success", all},
                                 {"failure", {{{"request_range", record_range(name)}}}}}};
  const Deadline sent = BootClock::now();
  const auto answer = client_.ask_once(transaction, call_options);
  // A waiter that was to be notified has died.
  const bool life_has_ended = answer.code == EtcdCode::invalid_argument &&
                              answer.message.find("key not found") != std::string::npos;
  if (life_has_ended) return read(name, nullptr, call_options);
  if (answer.code == EtcdCode::not_found) {
    throw_unavailable(client_.name() + ": a lease ended before the lock was acquired",
                      Cause::other_reply);
  }
  if (answer.code != EtcdCode::ok) client_.refuse(answer);
  const auto revision = revision_in(answer.fields);
  if (!is_true(answer.fields, "succeeded")) {
    return snapshot_from(name, revision, first_range_in(answer.fields), sent, call_options);
  }
  // Write the messages and ends of lives that the transaction had no room for. If this fails,
  // waiters wake later.
  const auto write_some = [&](const std::vector<json>& some) {
    return client_.ask({{"kv/txn", {{"success", some}}}}, call_options).front().code;
  };
  for (std::size_t at = 0, next = 0; at < more.size(); at = next) {
    next = std::min(at + most_operations, more.size());
    const auto begin = more.begin();
    if (write_some({begin + at, begin + next}) == EtcdCode::ok) continue;
    // One of the waiters has died meanwhile, so etcd refused all: write each operation by itself.
    for (std::size_t i = at; i < next; ++i) write_some({more[i]});
  }
  return revision;
}

json EtcdBackend::page(const std::string& prefix, const std::string& after, int most,
                       const CallOptions& call_options) {
  json fields = range_fields(after + '\0', end_of_prefix(prefix));
  fields["limit"] = std::to_string(most);
  return client_.done({"kv/range", fields}, call_options);
}

RecordPage EtcdBackend::list(const std::string& prefix, const std::string& after,
                             const CallOptions& call_options) {
  RecordPage listed;
  std::string last = after;
  const Deadline sent = BootClock::now();
  do {
    const json answer = page(prefix, last, page_size, call_options);
    const EtcdRange range = range_in(answer);
    const auto revision = revision_in(answer);
    for (const EtcdEntry& entry : range.entries) {
      last = entry.key;
      const auto life = entry.key.find(before_life);
      if (life != std::string::npos) {
        add_life(listed.records, entry.key.substr(0, life), entry.key.substr(life + 1),
                 entry.lease);
      }
      if (!is_record(entry)) continue;
      listed.records.push_back(
          {entry.key, snapshot_from(entry.key, revision, {{entry}}, sent, call_options)});
    }
    listed.last = !range.more;
  } while (listed.records.empty() && !listed.last);
  if (listed.last) return listed;
  // Some lives of the last record may be on the next page.
  NamedRecord& record = listed.records.back();
  record.seen = read(record.name, nullptr, call_options);
  return listed;
}

std::int64_t EtcdBackend::count(const std::string& prefix, const CallOptions& call_options) {
  json fields = range_fields(prefix, end_of_prefix(prefix));
  fields["count_only"] = true;
  return range_in(client_.done({"kv/range", fields}, call_options)).count;
}

void EtcdBackend::sweep(const std::string& prefix, const std::string& after,
                        const CallOptions& call_options) {
  const json answer = page(prefix, after, records_per_sweep, call_options);
  const microseconds now = wall_now().time_since_epoch();
  for (EtcdEntry& entry : range_in(answer).entries) {
    if (!is_record(entry) || entry.lease != 0) continue;
    if (take_end(entry.value).value_or(now) >= now) continue;
    // Delete the record only if it is unchanged and has no lives.
    json no_life = range_fields(entry.key + before_life, entry.key + after_lives);
    no_life.update({{"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}});
    client_.done({"kv/txn",
                  {{"compare", {unchanged_since(entry.key, entry.version), no_life}},
                   {"success", {delete_operation(entry.key)}}}},
                 call_options);
  }
}

void EtcdBackend::close() {
  client_.close();
  watched_.clear();
  events_.clear();
}

EngineLease EtcdBackend::grant(milliseconds asked, const CallOptions& call_options) {
  EngineLease lease{random_lease_id(), asked, {}, BootClock::now()};
  take_grant(lease, client_.ask({grant_request(lease)}, call_options).front());
  return lease;
}

/// Stores the answer to a request that granted a lease.
void EtcdBackend::take_grant(EngineLease& lease, const EtcdAnswer& answer) const {
  // The lease exists: an earlier try of this call has granted it, and its answer was lost.
  if (answer.code == EtcdCode::failed_precondition) {
    lease.length = std::chrono::seconds(whole_seconds(lease.asked));
  } else {
    take_lease(lease, answer);
  }
}

/// Stores the answer to a request that renewed a lease.
void EtcdBackend::take_lease(EngineLease& lease, const EtcdAnswer& answer) const {
  const bool has_ended = answer.code == EtcdCode::not_found;
  if (!has_ended && answer.code != EtcdCode::ok) client_.refuse(answer);
  lease.length = span_in(answer.fields, "TTL");
  if (has_ended || lease.length == milliseconds(0)) lease.id = 0;
}

void EtcdBackend::renew(EngineLease& lease, const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  take_lease(lease, client_.ask({about_lease("lease/keepalive", lease.id)}, call_options).front());
  lease.sent = sent;
}

void EtcdBackend::revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) {
  std::vector<EtcdRequest> requests;
  for (const std::int64_t id : leases) requests.push_back(about_lease("lease/revoke", id));
  for (const EtcdAnswer& answer : client_.ask(requests, call_options)) {
    const bool has_ended = answer.code == EtcdCode::ok || answer.code == EtcdCode::not_found;
    if (!has_ended) client_.refuse(answer);
  }
}

std::vector<CasLeases::Left> EtcdBackend::left_of(const std::vector<std::int64_t>& leases,
                                                  const CallOptions& call_options) {
  // Limited, because each of these requests has its own connection.
  constexpr std::size_t at_once = 8;
  std::vector<Left> all;
  for (std::size_t first = 0; first < leases.size(); first += at_once) {
    std::vector<EtcdRequest> requests;
    for (std::size_t i = first; i < std::min(first + at_once, leases.size()); ++i) {
      requests.push_back(about_lease("lease/timetolive", leases[i]));
    }
    for (const EtcdAnswer& answer : client_.ask(requests, call_options)) {
      const bool known = answer.code == EtcdCode::ok || answer.code == EtcdCode::not_found;
      if (!known) client_.refuse(answer);
      const milliseconds length = span_in(answer.fields, "grantedTTL");
      // etcd reports whole seconds, rounded down. Before etcd 3.4.32 and 3.5.14, a leader that is
      // being replaced no longer knows when the lease ends, and reports 292 years.
      const milliseconds most = span_in(answer.fields, "TTL") + milliseconds(999);
      const bool lives = number_in(answer.fields, "TTL") >= 0;
      all.push_back({length, lives ? std::min(length, most) : milliseconds(0)});
    }
  }
  return all;
}

}  // namespace dlock
