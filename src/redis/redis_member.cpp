#include "redis/redis_member.hpp"

#include <map>

#include "base/error.hpp"
#include "redis/script_answer.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

/// The value of `field` in what INFO answers, a line each.
std::string info_field(std::string_view info, const std::string& field) {
  const std::string begin = "\n" + field + ":";
  const auto at = info.find(begin);
  if (at == std::string_view::npos) return "";
  info.remove_prefix(at + begin.size());
  return std::string(info.substr(0, info.find_first_of("\r\n")));
}

/// Whether a restart forgets nothing that was answered; nothing where `config` is a refusal. What
/// keeps the disk from being written to while it is busy otherwise keeps no promise.
std::optional<bool> durable_by(const Reply& config) {
  if (config.is_error()) return std::nullopt;
  std::map<std::string_view, std::string_view> settings;
  for (std::size_t i = 0; i + 1 < config.items.size(); i += 2) {
    settings[config.items[i].text] = config.items[i + 1].text;
  }
  return settings["appendonly"] == "yes" && settings["appendfsync"] == "always" &&
         settings["no-appendfsync-on-rewrite"] == "no";
}

const std::vector<Request>& questions() {
  static const std::vector<Request> all{{"INFO", "server"}, {"CONFIG", "GET", "*append*"}};
  return all;
}

}  // namespace

RedisMember::RedisMember(const Endpoint& server, const std::string& prefix, LinkListener on_link,
                         AddressListener on_resolved)
    : RedisStore(std::make_unique<FixedEndpoint>(server),
                 {.prefix = prefix,
                  .member = true,
                  .on_link = std::move(on_link),
                  .on_resolved = std::move(on_resolved)},
                 std::make_shared<Pending>(), questions()) {}

Answer RedisMember::vote(const Claim& claim, const Ask& ask, Fence proposal,
                         const CallOptions& call_options) {
  const int link = connection().links();
  Answer answer = acquire_with(proposal, claim, ask, call_options);
  // A new link has told its clock itself, in less time.
  if (std::holds_alternative<Refusal>(answer) && connection().links() == link) {
    note_clock(last_refusal().clock, last_refusal().sent, BootClock::now());
  }
  return answer;
}

void RedisMember::note_clock(microseconds server, Deadline sent, Deadline received) {
  standing_.clock = ClockReading{server, sent, received};
}

Renewed RedisMember::renew(const Claim& claim, const RenewalTerms& terms,
                           const CallOptions& call_options) {
  return renew_with(renewal_arguments(claim, terms.ttl, terms.granted), {claim.key, claim.token},
                    call_options);
}

std::optional<Grant> RedisMember::rejoin(const Claim& claim, Fence fence,
                                         const CallOptions& call_options) {
  const Asked asked{claim.key, claim.token};
  auto arguments = claim_arguments("rejoin", claim);
  arguments.push_back(std::to_string(fence.value));
  note_asked(asked);
  auto grant = renew_with(arguments, asked, call_options).grant;
  note_answered(asked);
  return grant;
}

Fence RedisMember::record_max(const LockKey& resource, Fence fence,
                              const CallOptions& call_options) {
  const Fence largest = RedisStore::record_max(resource, fence, call_options);
  know_process();
  return largest;
}

std::vector<KeyState> RedisMember::inspect(const Query& query, const CallOptions& call_options) {
  auto states = RedisStore::inspect(query, call_options);
  know_process();
  return states;
}

LatchState RedisMember::mend_latch(const LockKey& key, const LatchTerms& terms,
                                   const std::optional<Displaced>& displaced,
                                   const std::vector<ArrivalId>& arrived,
                                   const CallOptions& call_options) {
  auto arguments = opening(terms);
  if (displaced) {
    arguments[5] = displaced->arrivals_stay ? "keep" : "clear";
    arguments[6] = displaced->generation;
  }
  for (const ArrivalId& id : arrived) arguments.push_back(id.text);
  return ask_latch(key, arguments, false, call_options).value_or(LatchPart()).state;
}

std::optional<LatchPart> RedisMember::read_latch(const LockKey& key, std::size_t known, bool listen,
                                                 const CallOptions& call_options) {
  constexpr std::size_t told_at_once = 1000;
  const auto first = std::to_string(known + 1);
  return ask_latch(key, {"read", first, std::to_string(known + told_at_once)}, listen,
                   call_options);
}

Reply RedisMember::run_script(const ScriptRun& run, const CallOptions& call_options) {
  Reply reply = RedisClient::run_script(run, call_options);
  know_process();
  return reply;
}

Reply RedisMember::call(const LockKey& key, const std::vector<std::string>& arguments,
                        const std::string& channel, const CallOptions& call_options) {
  Reply reply = RedisStore::call(key, arguments, channel, call_options);
  if (reply.is_error() || take_standing(reply)) return reply;
  record_process(key, call_options);
  // A hold found, renewed or released is that, whichever process is recorded.
  if (arguments.front() != "acquire") return reply;
  if (word(reply, 0) == "granted" && standing_.quarantined_for > milliseconds(0)) {
    Reply given_back =
        RedisStore::call(key, {"release", arguments[1], "0", "1", "0"}, "", call_options);
    check(key, given_back);
  }
  // Also for the sake of the subscription, which other requests have ended.
  reply = RedisStore::call(key, arguments, channel, call_options);
  if (!reply.is_error() && !take_standing(reply)) memory_lost();
  return reply;
}

void RedisMember::record_process(const LockKey& key, const CallOptions& call_options) {
  const std::string flag = process_.durable.value_or(false) ? "a" : "-";
  Reply reply = RedisStore::call(key, {"record_process", process_.run_id, flag}, "", call_options);
  check(key, reply);
  if (!take_standing(reply)) memory_lost();
}

void RedisMember::memory_lost() const {
  throw Error(ErrorKind::unavailable,
              name() +
                  ": what was written to it a moment ago is gone: its memory is not to be "
                  "relied upon");
}

bool RedisMember::take_standing(Reply& reply) {
  if (!reply.is_array(2)) unexpected_answer();
  const std::string vouched = std::move(reply.items.back().text);
  reply.items.pop_back();
  standing_.quarantined_for = span(reply, reply.items.size() - 1);
  standing_.process = process_.run_id;
  reply.items.pop_back();
  if (!process_.durable) return vouched.starts_with(process_.run_id + "/");
  return vouched == process_.run_id + (*process_.durable ? "/a" : "/-");
}

void RedisMember::know_process() {
  if (process_.link == connection().links()) return;
  const Reply& info = connection().answers().at(0);
  if (info.is_error("NOPERM")) {
    throw Error(ErrorKind::denied,
                name() +
                    ": the user may not use INFO, which tells whether a server of several has lost "
                    "its memory: its ACL needs +info");
  }
  if (info.is_error()) {
    const Error error = server_error(info);
    throw error.reworded(name() + ": " + error.what());
  }
  if (info_field(info.text, "redis_mode") == "cluster") {
    throw Error(ErrorKind::unavailable,
                name() + ": it is a node of a Cluster, which cannot be one of several servers");
  }
  const std::string run_id = info_field(info.text, "run_id");
  if (run_id.empty() || run_id.find(' ') != std::string::npos) {
    throw Error(ErrorKind::unavailable, name() + ": INFO does not tell its run_id");
  }
  standing_.process = run_id;
  const std::string clock = info_field(info.text, "server_time_usec");
  const auto [sent, received] = connection().answered_between();
  if (!clock.empty()) note_clock(server_clock(clock), sent, received);
  process_ = {connection().links(), run_id, durable_by(connection().answers().at(1))};
}

}  // namespace dlock
