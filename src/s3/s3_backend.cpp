#include "s3/s3_backend.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"
#include "s3/s3_conditions.hpp"
#include "s3/s3_xml.hpp"

namespace dlock {
namespace {

constexpr std::string_view first_words = "dlock-s3 1 ";
/// Different servers of S3, with clocks of their own, answer a client: a second for that, and a
/// second because `Date` cuts off the parts of a second.
constexpr milliseconds clock_unsure{2000};
constexpr std::size_t gets_at_once = 8, page_size = 200, keys_of_count = 1000, keys_of_sweep = 50;
/// A record is swept a week after its last use, so a younger object needs no look.
constexpr std::chrono::hours youngest_swept{24 * 7};

}  // namespace

/// An object that may be a record.
struct S3Backend::Object {
  std::string key{};
  std::string etag{};
  std::string name{};
  microseconds ends{0};
  Snapshot seen{};

  /// Whether the answer is a record of dlock; then the other members get its contents.
  bool take(const HttpCall& call) {
    std::string_view body = call.answer;
    if (call.status != s3_ok || !body.starts_with(first_words)) return false;
    body.remove_prefix(first_words.size());
    seen.version = parse_number(take_until(body, ' '), 1, INT64_MAX).value_or(0);
    name = percent_decoded(take_until(body, '\n'));
    seen.text = body;
    const auto end = take_end(seen.text);
    if (seen.version == 0 || !end) return false;
    ends = *end;
    etag = call.answer_field("etag");
    return true;
  }
};

struct S3Backend::Listing {
  std::vector<std::string> keys;
  std::vector<std::string> modified;  ///< of each
  bool last = true;
};

/// `FOLDER/k/nightly-4f2a...`, and `FOLDER/arrival/GENERATION/...`, so that those of one latch can
/// be counted. A name that ends before its last part is the beginning of many keys.
std::string S3Backend::key_of(const std::string& name) const {
  std::string_view rest = std::string_view(name).substr(prefix_.size());
  const auto kind = take_until(rest, ':');
  std::string key = client_.place().folder + "/" + std::string(kind) + "/";
  if (kind == "arrival") {
    const bool whole = rest.find(':') != std::string_view::npos;
    key += take_until(rest, ':');
    if (whole) key += '/';
  }
  return rest.empty() ? key : key + plain_name(name, rest);
}

/// An empty snapshot with the times of the last answer.
Snapshot S3Backend::dated() const {
  const DatedAnswer& last = *client_.last_answer();
  return {.clock = last.clock, .clock_unsure = clock_unsure, .sent = last.sent};
}

Snapshot S3Backend::read(const std::string& name, OwnLife*, const CallOptions& call_options) {
  Object object{key_of(name)};
  const HttpCall call = client_.get(object.key, call_options);
  object.seen = dated();
  known_.erase(name);
  if (call.status == s3_not_found) return object.seen;
  if (!object.take(call) || object.name != name) {
    throw Error(ErrorKind::wrong_data,
                this->name() + ": the object " + object.key +
                    " holds something else than a record of dlock: it is left as it is");
  }
  known_[name] = {object.seen.version, object.etag};
  return object.seen;
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
    if (known_[name].version != over.version) {
      Snapshot now = read(name, nullptr, of_a_read);
      if (now.version != over.version) return now;
    }
    condition = "If-Match: " + known_[name].etag;
  }
  // An ETag is a hash of the text: with a random number in each text no two are equal.
  const Version version = random_version();
  const std::string body = std::string(first_words) + std::to_string(version) + " " +
                           percent_encoded(name) + "\n" + value_of(update);
  const HttpCall call = client_.send_one({"PUT", key_of(name), {}, body, condition}, call_options);
  if (call.status != s3_ok) return read(name, nullptr, of_a_read);
  known_[name] = {version, call.answer_field("etag")};
  return version;
}

S3Backend::Listing S3Backend::keys(const std::string& prefix, const std::string& after,
                                   std::size_t most, const CallOptions& call_options) {
  // A slash in a parameter is signed as %2F.
  const auto value = [](const std::string& text) { return percent_encoded(text, "/"); };
  const std::string query = "list-type=2&max-keys=" + std::to_string(most) +
                            "&prefix=" + value(prefix) +
                            (after.empty() ? "" : "&start-after=" + value(after));
  const HttpCall call = client_.send_one({"GET", "", query}, call_options);
  return {xml_texts(call.answer, "Key"), xml_texts(call.answer, "LastModified"),
          xml_text(call.answer, "IsTruncated") != "true"};
}

/// The records among the objects with these keys.
std::vector<S3Backend::Object> S3Backend::objects(const std::vector<std::string>& keys,
                                                  const CallOptions& call_options) {
  std::vector<Object> found;
  for (std::size_t first = 0; first < keys.size(); first += gets_at_once) {
    std::vector<S3Request> requests;
    for (std::size_t i = first; i < std::min(first + gets_at_once, keys.size()); ++i) {
      requests.push_back({"GET", keys[i]});
    }
    const auto calls = client_.send(requests, call_options);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Object object{requests[i].key};
      object.seen = dated();
      if (object.take(calls[i])) found.push_back(std::move(object));
    }
  }
  return found;
}

RecordPage S3Backend::list(const std::string& prefix, const std::string& after,
                           const CallOptions& call_options) {
  RecordPage page;
  std::string last = after == prefix ? "" : key_of(after);
  do {
    const Listing listed = keys(key_of(prefix), last, page_size, call_options);
    for (Object& object : objects(listed.keys, call_options)) {
      if (!object.name.starts_with(prefix) || key_of(object.name) != object.key) continue;
      page.records.push_back({object.name, std::move(object.seen)});
    }
    page.last = listed.last;
    if (!listed.keys.empty()) last = listed.keys.back();
  } while (page.records.empty() && !page.last);
  return page;
}

std::int64_t S3Backend::count(const std::string& prefix, const CallOptions& call_options) {
  std::int64_t all = 0;
  for (std::string last;;) {
    const Listing listed = keys(key_of(prefix), last, keys_of_count, call_options);
    all += static_cast<std::int64_t>(listed.keys.size());
    if (listed.last || listed.keys.empty()) return all;
    last = listed.keys.back();
  }
}

void S3Backend::sweep(const std::string& prefix, const std::string& after,
                      const CallOptions& call_options) {
  const Listing listed =
      keys(key_of(prefix), after == prefix ? "" : key_of(after), keys_of_sweep, call_options);
  const microseconds now = client_.last_answer()->clock;
  const std::string before = iso8601(WallTime(now - youngest_swept));
  std::vector<std::string> old;
  for (std::size_t i = 0; i < std::min(listed.keys.size(), listed.modified.size()); ++i) {
    if (listed.modified[i] < before) old.push_back(listed.keys[i]);
  }
  std::vector<Object> ended = objects(old, call_options);
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
  constexpr int rarer = 5;
  const bool is_first = watch.look != never;
  const auto pause = is_first ? least : std::clamp(rarer * left_until(watch.poll), least, most);
  watch.poll = later(BootClock::now(), pause);
  return await_poll(watch, until, cancel_fd);
}

}  // namespace dlock
