#include "s3/s3_backend.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"
#include "s3/s3_conditions.hpp"

namespace dlock {
namespace {

/// Different servers of S3, with clocks of their own, answer a client: a second for that, and a
/// second because `Date` cuts off the parts of a second.
constexpr milliseconds clock_unsure{2000};
constexpr std::size_t page_size = 200, keys_of_count = 1000, keys_of_sweep = 50;

}  // namespace

/// `FOLDER/k/nightly-4f2a...`, and `FOLDER/arrival/GENERATION/...`, so that those of one latch can
/// be counted. A name that ends before its last part is the beginning of many keys.
std::string S3Backend::key_of(const std::string& name) const {
  std::string_view rest = std::string_view(name).substr(prefix_.size());
  const auto kind = take_until(rest, ':');
  std::string key = client_.place().folder + "/" + std::string(kind) + "/";
  if (kind == "arrival" && !rest.empty()) key += std::string(take_until(rest, ':')) + "/";
  return rest.empty() ? key : key + plain_name(name, rest);
}

/// The record in the answer to a GET; nothing if it is none of dlock's.
std::optional<S3Backend::Object> S3Backend::object_in(const std::string& key,
                                                      const HttpCall& call) const {
  auto record = call.status == s3_ok ? stored_in(call.answer) : std::nullopt;
  const auto ends = record ? take_end(record->text) : std::nullopt;
  if (!ends) return std::nullopt;
  Object object{key, call.answer_field("etag"), record->name, *ends, dated(clock_unsure)};
  object.seen.version = record->version;
  object.seen.text = std::move(record->text);
  return object;
}

Snapshot S3Backend::read(const std::string& name, OwnLife*, const CallOptions& call_options) {
  const std::string key = key_of(name);
  const HttpCall call = client_.send_one({"GET", key}, call_options);
  known_.erase(name);
  if (call.status == s3_not_found) return dated(clock_unsure);
  auto object = object_in(key, call);
  if (!object || object->name != name) throw_no_record(this->name() + ": the object " + key);
  known_[name] = {object->seen.version, std::move(object->etag)};
  return std::move(object->seen);
}

std::variant<Version, Snapshot> S3Backend::write(const std::string& name, const Snapshot& over,
                                                 const Update& update,
                                                 const CallOptions& call_options) {
  const CallOptions of_a_read{call_options.deadline, call_options.cancel_fd};
  std::string condition = "If-None-Match: *";
  if (over.version == 0) {
    if (!tried_) require_conditional_writes_once(client_, of_a_read);
    tried_ = true;
  } else {
    if (known_[name].first != over.version) {
      Snapshot now = read(name, nullptr, of_a_read);
      if (now.version != over.version) return now;
    }
    condition = "If-Match: " + known_[name].second;
  }
  // An ETag is a hash of the text: with a random number in each text no two are equal.
  const Version version = random_version();
  const std::string body = stored({version, name, value_of(update)});
  const HttpCall call = client_.send_one({"PUT", key_of(name), {}, body, condition}, call_options);
  if (call.status != s3_ok) return read(name, nullptr, of_a_read);
  known_[name] = {version, call.answer_field("etag")};
  return version;
}

/// The first keys that begin with `prefix` and come after `after`, each with the time of its last
/// write.
S3Backend::Listing S3Backend::keys(const std::string& prefix, const std::string& after,
                                   std::size_t most, const CallOptions& call_options) {
  // A slash in a parameter is signed as %2F.
  const auto value = [](const std::string& text) { return percent_encoded(text, "/"); };
  const std::string query = "list-type=2&max-keys=" + std::to_string(most) +
                            "&prefix=" + value(prefix) +
                            (after.empty() ? "" : "&start-after=" + value(after));
  const HttpCall call = client_.send_one({"GET", "", query}, call_options);
  const auto found = xml_texts(call.answer, "Key"),
             written = xml_texts(call.answer, "LastModified");
  Listing listing;
  for (std::size_t i = 0; i < std::min(found.size(), written.size()); ++i) {
    listing[found[i]] = written[i];
  }
  return listing;
}

/// The records among the objects with these keys.
std::vector<S3Backend::Object> S3Backend::objects(const Listing& listing,
                                                  const CallOptions& call_options) {
  std::vector<S3Request> requests;
  for (const auto& [key, written] : listing) requests.push_back({"GET", key});
  const auto calls = client_.send(requests, call_options);
  std::vector<Object> found;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (auto object = object_in(requests[i].key, calls[i])) found.push_back(std::move(*object));
  }
  return found;
}

RecordPage S3Backend::list(const std::string& prefix, const std::string& after,
                           const CallOptions& call_options) {
  RecordPage page{{}, false};
  std::string last = after == prefix ? "" : key_of(after);
  while (page.records.empty() && !page.last) {
    const Listing listing = keys(key_of(prefix), last, page_size, call_options);
    for (Object& object : objects(listing, call_options)) {
      if (!object.name.starts_with(prefix) || key_of(object.name) != object.key) continue;
      page.records.push_back({object.name, std::move(object.seen)});
    }
    page.last = listing.size() < page_size;
    if (!page.last) last = listing.rbegin()->first;
  }
  return page;
}

std::int64_t S3Backend::count(const std::string& prefix, const CallOptions& call_options) {
  std::int64_t all = 0;
  for (std::string last;;) {
    const Listing listing = keys(key_of(prefix), last, keys_of_count, call_options);
    all += static_cast<std::int64_t>(listing.size());
    if (listing.size() < keys_of_count) return all;
    last = listing.rbegin()->first;
  }
}

void S3Backend::sweep(const std::string& prefix, const std::string& after,
                      const CallOptions& call_options) {
  Listing listing =
      keys(key_of(prefix), after == prefix ? "" : key_of(after), keys_of_sweep, call_options);
  const microseconds now = client_.last_answer()->clock;
  // A record ends a week after its last use, so a younger object needs no look.
  const std::string young = iso8601(WallTime(now - std::chrono::hours(24 * 7)));
  std::erase_if(listing, [&](const auto& each) { return each.second >= young; });
  auto ended = objects(listing, call_options);
  std::erase_if(ended, [&](const Object& each) { return each.ends >= now - clock_unsure; });
  // Without the comparison a lock could be deleted that was acquired a moment ago.
  if (ended.empty() || !deletes_under_condition(client_, call_options)) return;
  for (const Object& each : ended) {
    client_.send_one({"DELETE", each.key, {}, {}, "If-Match: " + each.etag}, call_options);
  }
}

std::variant<std::string, Wake::Reason> S3Backend::watch(RecordWatch& watch, Deadline until,
                                                         int cancel_fd) {
  // Every look costs money, and takes a request of the bucket's. The first two waiters look every
  // second; others five times as rarely as other engines let them, but often enough to confirm a
  // hand-over, which lasts eight seconds.
  constexpr milliseconds least{1000}, most{5000};
  const bool is_first = watch.look != never;
  const auto pause = is_first ? least : std::clamp(5 * left_until(watch.poll), least, most);
  watch.poll = later(BootClock::now(), pause);
  return await_poll(watch, until, cancel_fd);
}

}  // namespace dlock
