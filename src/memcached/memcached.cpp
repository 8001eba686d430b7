#include "memcached/memcached.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"

namespace dlock {
namespace {

using std::chrono::seconds;

constexpr std::string_view line_end = "\r\n";

/// Throws for an answer that reports a failure, or that no memcached 1.6 gives.
[[noreturn]] void refuse(const std::string& line) {
  if (line.starts_with("CLIENT_ERROR unauthenticated")) {
    throw Error(ErrorKind::denied, "it requires a password, and dlock has none for memcached",
                Cause::password_missing);
  }
  const bool is_full = line.starts_with("SERVER_ERROR out of memory");
  if (is_full) throw_unavailable("it is full: give it more memory (-m)", Cause::out_of_memory);
  const bool is_crowded = line.find("Too many open connections") != std::string::npos;
  if (is_crowded) throw_unavailable("it is at its limit of connections", Cause::too_many_clients);
  const bool failed = line.starts_with("SERVER_ERROR");
  throw_unavailable((failed ? "it answers " : "not a memcached 1.6 or later: it answers ") +
                        escaped(line.substr(0, 60)),
                    Cause::other_reply);
}

/// The name of a record in memcached, which permits 250 printable characters.
std::string key_of(const std::string& record) { return plain_name(record, record); }

/// When memcached may remove a record, as a number of seconds from now or, beyond 30 days, as a
/// time of its clock, which ends in 2038; 0: never. Two seconds are for the clock's inexactness.
std::string expiry_of(const Update& update, microseconds clock) {
  constexpr seconds longest_span{60 * 60 * 24 * 30};
  if (update.ends == microseconds::max()) return "0";
  const auto end = std::chrono::ceil<seconds>(update.ends + memcached_clock_unsure);
  const auto left = std::max(seconds(1), end - std::chrono::floor<seconds>(clock));
  const auto told = left <= longest_span ? left : std::min(end, seconds(INT32_MAX));
  return std::to_string(told.count());
}

[[noreturn]] void refuse_list() {
  throw_usage("memcached cannot list its keys: name them with -k KEY");
}

}  // namespace

MemcachedClient::MemcachedClient(Endpoint server, std::string shown)
    : server_(std::move(server)), shown_(std::move(shown)) {}

void MemcachedClient::close() {
  stream_.reset();
  arrived_.clear();
}

void MemcachedClient::connect(const CallOptions& call_options) {
  if (stream_ && !stream_->has_ended()) return;
  close();
  exchange("", call_options, [&] {
    stream_ = Stream::connect(server_, call_options);
    ++connection_;
  });
}

/// Sends requests and calls `take_answers`. A failure may leave answers unread, so it closes the
/// connection.
void MemcachedClient::exchange(const std::string& requests, const CallOptions& call_options,
                               const std::function<void()>& take_answers) {
  try {
    if (!requests.empty()) stream_->send(requests, call_options);
    if (call_options.sent != nullptr && !requests.empty()) call_options.sent->raise();
    take_answers();
  } catch (const Error& error) {
    close();
    if (error.kind() == ErrorKind::interrupted) throw;
    const bool has_tls = error.cause() == Cause::no_tls;
    throw error.reworded(shown_ + ": " +
                         (has_tls ? "it speaks TLS, and dlock only plain text" : error.what()));
  }
}

std::string MemcachedClient::take(std::size_t bytes, const CallOptions& call_options) {
  while (arrived_.size() < bytes) arrived_ += stream_->receive(call_options);
  std::string taken = arrived_.substr(0, bytes);
  arrived_.erase(0, bytes);
  return taken;
}

/// Returns the next line, without its end.
std::string MemcachedClient::take_line(const CallOptions& call_options) {
  while (arrived_.find(line_end) == std::string::npos) {
    arrived_ += stream_->receive(call_options);
  }
  std::string line = take(arrived_.find(line_end) + line_end.size(), call_options);
  line.resize(line.size() - line_end.size());
  return line;
}

/// Takes `VA BYTES cCAS` and the value, or `EN` if there is none.
void MemcachedClient::take_value(Answer& answer, const CallOptions& call_options) {
  const std::string line = take_line(call_options);
  std::string_view rest = line;
  const auto code = take_until(rest, ' ');
  if (code == "EN") return;
  const auto bytes = parse_number(take_until(rest, ' '), 0, INT32_MAX);
  if (code != "VA" || !bytes || !rest.starts_with('c')) refuse(line);
  answer.cas = take_until(rest, ' ').substr(1);
  if (answer.cas == "0") {
    throw_unavailable("it runs with -C, and without the cas that locks need", Cause::other_reply);
  }
  answer.value = take(static_cast<std::size_t>(*bytes), call_options);
  take(line_end.size(), call_options);
}

/// Takes lines `STAT NAME VALUE`, until `END`.
MemcachedClient::Stats MemcachedClient::take_stats(const CallOptions& call_options) {
  Stats stats;
  while (true) {
    const std::string line = take_line(call_options);
    std::string_view rest = line;
    const auto word = take_until(rest, ' ');
    if (word == "END") return stats;
    if (word != "STAT") refuse(line);
    const std::string name(take_until(rest, ' '));
    stats[name] = rest;
  }
}

MemcachedClient::Answer MemcachedClient::ask(const std::string& write, const std::string& key,
                                             const CallOptions& call_options) {
  Answer answer;
  exchange(write + "mg " + key + " v c\r\nstats\r\n", call_options, [&] {
    if (!write.empty()) {
      const std::string line = take_line(call_options);
      std::string_view rest = line;
      answer.written = take_until(rest, ' ');
      const auto known = {"HD", "NS", "EX", "NF"};
      if (std::count(known.begin(), known.end(), answer.written) == 0) refuse(line);
    }
    take_value(answer, call_options);
    const auto time = parse_number(take_stats(call_options)["time"], 1, UINT32_MAX);
    if (!time) refuse("stats without time");
    answer.clock = seconds(*time);
  });
  return answer;
}

MemcachedClient::Stats MemcachedClient::stats(const std::string& group,
                                              const CallOptions& call_options) {
  Stats stats;
  exchange("stats " + group + "\r\n", call_options, [&] { stats = take_stats(call_options); });
  return stats;
}

MemcachedBackend::MemcachedBackend(Endpoint server, std::string shown)
    : shown_(std::move(shown)), client_(std::move(server), shown_) {}

/// The clock that memcached reports is never ahead of its own: it sets it once a second, by a
/// timer, and cuts it down to whole seconds. So it is up to a second old, and up to a second less
/// than it was then. A lease that one client dates by a clock that is two seconds behind, another
/// client may judge by an exact one: hence two seconds, and the lease never ends too early. In the
/// other direction a lease only lasts longer. The timer counts CLOCK_MONOTONIC from the start of
/// the server, so that no change of the wall clock moves it.
Snapshot MemcachedBackend::snapshot_from(const std::string& name,
                                         const MemcachedClient::Answer& answer, Deadline sent) {
  Snapshot seen{.clock = answer.clock, .clock_unsure = memcached_clock_unsure, .sent = sent};
  states_.erase(name);
  if (!answer.value) return seen;
  auto record = stored_in(*answer.value);
  if (!record || record->name != name) {
    throw_no_record(shown_ + ": the value of " + key_of(name));
  }
  seen.text = std::move(record->text);
  seen.version = record->version;
  states_[name] = {seen.version, answer.cas, client_.connection()};
  return seen;
}

Snapshot MemcachedBackend::read(const std::string& name, OwnLife*,
                                const CallOptions& call_options) {
  client_.connect(call_options);
  const Deadline sent = BootClock::now();
  return snapshot_from(name, client_.ask("", key_of(name), call_options), sent);
}

std::variant<Version, Snapshot> MemcachedBackend::write(const std::string& name,
                                                        const Snapshot& over, const Update& update,
                                                        const CallOptions& call_options) {
  client_.connect(call_options);
  State state = states_[name];
  const bool is_known = state.version == over.version && state.connection == client_.connection();
  // A memcached that was restarted, which ends its connections, counts its cas from 1 again. The
  // version is random, and so tells equal ones apart.
  if (over.version != 0 && !is_known) {
    Snapshot now = read(name, nullptr, {call_options.deadline, call_options.cancel_fd});
    if (now.version != over.version) return now;
    state = states_[name];
  }
  const Version next = random_version();
  const std::string value = stored({next, name, update.text});
  const std::string key = key_of(name);
  const std::string request = "ms " + key + " " + std::to_string(value.size()) +
                              (over.version == 0 ? " ME" : " C" + state.cas) + " T" +
                              expiry_of(update, over.clock) + "\r\n" + value + "\r\n";
  const Deadline sent = BootClock::now();
  const auto answer = client_.ask(request, key, call_options);
  Snapshot now = snapshot_from(name, answer, sent);
  if (answer.written != "HD") return now;
  // After a server stood still, its timer may be late for the first answers. A lease that is dated
  // by them would end early: the caller reads the clock anew, and writes again.
  if (now.clock > over.clock + passed_since(over.sent) + memcached_clock_unsure) {
    throw_unavailable(shown_ + ": its clock stood still");
  }
  return next;
}

RecordPage MemcachedBackend::list(const std::string&, const std::string&, const CallOptions&) {
  refuse_list();
}

std::int64_t MemcachedBackend::count(const std::string&, const CallOptions&) { refuse_list(); }

std::variant<std::string, Wake::Reason> MemcachedBackend::watch(RecordWatch& watch, Deadline until,
                                                                int cancel_fd) {
  return await_poll(watch, until, cancel_fd);
}

}  // namespace dlock
