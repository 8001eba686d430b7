#include "etcd/etcd_backend.hpp"

#include <algorithm>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

using nlohmann::json;

/// Separates the name of a record from that of its life; no key of a lock contains it.
constexpr char before_life = '\n';
constexpr char after_lives = '\n' + 1;
constexpr std::string_view first_word_of_value = "ends ";
/// etcd accepts at most 128 operations in a transaction.
constexpr std::size_t most_operations = 120;
constexpr int records_per_sweep = 50;

std::string life_key(const std::string& name, const std::string& life) {
  return name + before_life + life;
}

/// The keys of a record and of its lives.
json record_range(const std::string& name) { return range_fields(name, name + after_lives); }

/// Adds a life to the record of that name. The record is one of the last, or was on an earlier
/// page.
void add_life(std::vector<NamedRecord>& records, const std::string& name, std::string life,
              std::int64_t lease) {
  const auto record = std::find_if(records.rbegin(), records.rend(),
                                   [&](const auto& each) { return each.name == name; });
  if (record != records.rend()) record->lives.emplace(std::move(life), lease);
}

std::string value_of(const Update& update) {
  return std::string(first_word_of_value) + std::to_string(update.ends.count()) + "\n" +
         update.text;
}

}  // namespace

/// The parts of a record's value.
struct EtcdBackend::Record {
  microseconds ends{0};
  std::string text;
};

EtcdBackend::Record EtcdBackend::record_in(const std::string& record,
                                           const EtcdEntry& entry) const {
  std::string_view value = entry.value;
  const bool ours = value.starts_with(first_word_of_value);
  if (ours) value.remove_prefix(first_word_of_value.size());
  const auto ends = ours ? parse_number(take_until(value, '\n'), 0, INT64_MAX) : std::nullopt;
  if (!ends) {
    throw Error(ErrorKind::wrong_data,
                name() + ": the key " + escaped(record) +
                    " holds something else than a record of dlock: it is left as it is");
  }
  return {microseconds(*ends), std::string(value)};
}

Snapshot EtcdBackend::snapshot_from(const std::string& name, std::int64_t revision,
                                    const EtcdRange& range, Deadline sent,
                                    const CallOptions& call_options) {
  Snapshot seen;
  seen.sent = sent;
  // Only for tickets and for display: the lives decide which entries are valid.
  seen.clock = wall_now().time_since_epoch();
  seen.revision = revision;
  seen.lives.emplace();
  const std::string before_lives = name + before_life;
  for (const EtcdEntry& entry : range.entries) {
    if (entry.key.starts_with(before_lives)) {
      seen.lives->emplace(entry.key.substr(before_lives.size()), entry.lease);
    }
    if (entry.key != name) continue;
    const Record record = record_in(name, entry);
    seen.version = entry.version;
    seen.text = record.text;
    if (entry.lease == 0) continue;
    // A record with a lease ends with it, so the lease gives its clock.
    seen.clock = record.ends - left_of({entry.lease}, call_options).front().left;
  }
  return seen;
}

Snapshot EtcdBackend::read(const std::string& name, const std::string& channel,
                           const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const json answer =
      client_.done({"kv/range", record_range(name)}, EtcdClient::Repeat::yes, call_options);
  const auto revision = revision_in(answer);
  if (!channel.empty()) channels_[channel] = {name, revision};
  return snapshot_from(name, revision, range_in(answer), sent, call_options);
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
  for (const auto& [life, lease] : update.begun_lives) {
    json begin = put_operation(life_key(name, life), "");
    begin["request_put"]["lease"] = std::to_string(lease);
    all.push_back(std::move(begin));
  }
  for (const Wakeup& wakeup : update.wakeups) {
    // A latch needs no message, because its waiters watch the record.
    if (!over.lives->contains(wakeup.channel)) continue;
    json wake = put_operation(life_key(name, wakeup.channel), wakeup.message);
    wake["request_put"]["ignore_lease"] = true;
    all.push_back(std::move(wake));
  }
  for (const std::string& life : update.ended_lives) {
    all.push_back(delete_operation(life_key(name, life)));
  }
  return all;
}

std::variant<Version, Snapshot> EtcdBackend::write(const std::string& name, const Snapshot& over,
                                                   const Update& update,
                                                   const CallOptions& call_options) {
  if (update.text.size() > largest_record()) {
    throw_unavailable(client_.name() +
                          ": too many wait or hold: the record of the key would have " +
                          std::to_string(update.text.size()) + " bytes, of " +
                          std::to_string(largest_record()) + " that it may have",
                      Cause::other_reply);
  }
  auto all = operations(name, over, update, call_options);
  std::vector<json> more;
  if (all.size() > most_operations) {
    more.assign(all.begin() + most_operations, all.end());
    all.resize(most_operations);
  }
  const json unchanged = {{"key", put_operation(name, "")["request_put"]["key"]},
                          {"target", "MOD"},
                          {"result", "EQUAL"},
                          {"mod_revision", std::to_string(over.version)}};
  const EtcdRequest transaction{"kv/txn",
                                {{"compare", {unchanged}},
                                 {"success", all},
                                 {"failure", {{{"request_range", record_range(name)}}}}}};
  const Deadline sent = BootClock::now();
  const auto answer = client_.ask({transaction}, EtcdClient::Repeat::no, call_options).front();
  // A waiter that was to be notified has died.
  const bool life_has_ended = answer.code == EtcdCode::invalid_argument &&
                              answer.message.find("key not found") != std::string::npos;
  if (life_has_ended) return read(name, "", call_options);
  if (answer.code == EtcdCode::not_found) {
    throw_unavailable(client_.name() + ": a lease ended before the lock was acquired",
                      Cause::other_reply);
  }
  if (answer.code != EtcdCode::ok) client_.refuse(answer);
  const auto revision = revision_in(answer.fields);
  if (is_true(answer.fields, "succeeded")) {
    write_more(more, call_options);
    return revision;
  }
  const EtcdRange range = range_in(part_of(answer.fields, 0, "response_range"));
  return snapshot_from(name, revision, range, sent, call_options);
}

/// Writes the messages and ends of lives that the transaction had no room for. If this fails,
/// waiters wake later.
void EtcdBackend::write_more(const std::vector<json>& more, const CallOptions& call_options) {
  for (std::size_t at = 0, next = 0; at < more.size(); at = next) {
    next = std::min(at + most_operations, more.size());
    const std::vector<json> some(more.begin() + at, more.begin() + next);
    const EtcdRequest request{"kv/txn", {{"success", some}}};
    const auto answer = client_.ask({request}, EtcdClient::Repeat::yes, call_options).front();
    // A message is for a waiter that has died since: the others are written by themselves.
    if (answer.code == EtcdCode::ok || some.size() == 1) continue;
    for (const json& each : some) write_more({each}, call_options);
  }
}

json EtcdBackend::page_from(const std::string& from, const std::string& prefix, int& at_once,
                            const CallOptions& call_options) {
  json fields = range_fields(from, end_of_prefix(prefix));
  for (int most = at_once; most > 0; most /= 4) {
    fields["limit"] = std::to_string(most);
    if (auto answer = client_.done_unless_large({"kv/range", fields}, call_options)) {
      at_once = most;
      return std::move(*answer);
    }
  }
  // The large value is not dlock's, because all of dlock's values fit.
  fields["limit"] = "1";
  fields["keys_only"] = true;
  return client_.done({"kv/range", fields}, EtcdClient::Repeat::yes, call_options);
}

/// Throws if the keys do not come after `from`, because the next page would begin with them again.
EtcdRange EtcdBackend::keys_in(const json& answer, const std::string& from) const {
  EtcdRange range = range_in(answer);
  const auto is_before = [&](const EtcdEntry& entry) { return entry.key < from; };
  if (std::any_of(range.entries.begin(), range.entries.end(), is_before) ||
      (range.more && range.entries.empty())) {
    throw_unavailable(name() + ": an answer that is not etcd's: it lists what was not asked for",
                      Cause::other_reply);
  }
  return range;
}

RecordPage EtcdBackend::list(const std::string& prefix, const std::string& after,
                             const CallOptions& call_options) {
  RecordPage page;
  std::string from = after + '\0';
  const Deadline sent = BootClock::now();
  do {
    // The next page may be larger again, because its values may be smaller.
    listed_at_once_ = std::min(2 * listed_at_once_, page_size);
    const json answer = page_from(from, prefix, listed_at_once_, call_options);
    const EtcdRange range = keys_in(answer, from);
    if (page.records.empty())
      page.read = snapshot_from("", revision_in(answer), {}, sent, call_options);
    for (const EtcdEntry& entry : range.entries) {
      const auto life = entry.key.find(before_life);
      if (life != std::string::npos) {
        add_life(page.records, entry.key.substr(0, life), entry.key.substr(life + 1), entry.lease);
        continue;
      }
      // Foreign data is an error only for a read of that key.
      if (!entry.value.starts_with(first_word_of_value)) continue;
      Record record = record_in(entry.key, entry);
      page.records.push_back({entry.key, std::move(record.text), {}});
      if (entry.lease == 0) continue;
      page.records.back().clock = record.ends - left_of({entry.lease}, call_options).front().left;
    }
    page.last = !range.more;
    if (!range.entries.empty()) from = range.entries.back().key + '\0';
  } while (page.records.empty() && !page.last);
  if (!page.last) complete_last(page, call_options);
  return page;
}

/// Reads the last record again, because some of its lives may be on the next page.
void EtcdBackend::complete_last(RecordPage& page, const CallOptions& call_options) {
  const Snapshot last = read(page.records.back().name, "", call_options);
  page.records.back().text = last.text;
  page.records.back().lives = *last.lives;
}

std::int64_t EtcdBackend::count(const std::string& prefix, const CallOptions& call_options) {
  json fields = range_fields(prefix, end_of_prefix(prefix));
  fields["count_only"] = true;
  return range_in(client_.done({"kv/range", fields}, EtcdClient::Repeat::yes, call_options)).count;
}

void EtcdBackend::sweep(const std::string& prefix, const std::string& after,
                        const CallOptions& call_options) {
  int at_once = records_per_sweep;
  const json answer = page_from(after + '\0', prefix, at_once, call_options);
  const microseconds now = wall_now().time_since_epoch();
  for (const EtcdEntry& entry : range_in(answer).entries) {
    const bool is_record = entry.key.find(before_life) == std::string::npos &&
                           entry.value.starts_with(first_word_of_value) && entry.lease == 0;
    if (!is_record || record_in(entry.key, entry).ends >= now) continue;
    // Delete it only if it is unchanged and has no lives.
    json as_read = range_fields(entry.key, "");
    as_read.erase("range_end");
    as_read.update(
        {{"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(entry.version)}});
    json no_life = range_fields(entry.key + before_life, entry.key + after_lives);
    no_life.update({{"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}});
    client_.done(
        {"kv/txn", {{"compare", {as_read, no_life}}, {"success", {delete_operation(entry.key)}}}},
        EtcdClient::Repeat::yes, call_options);
  }
}

void EtcdBackend::close() {
  client_.close();
  watched_.clear();
  events_.clear();
}

}  // namespace dlock
