// The rule of a key on Redis exists twice: in src/redis/lock, and in tests/reference on top of the
// rule of the other engines. This test sends both the same random requests under one clock that it
// controls. Every answer, every message to a waiter and, now and then, the whole state must be
// equal. A difference is shrunk to a short list of steps before it is shown. Every other round asks
// as a quorum does.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "redis/entry_format.hpp"
#include "redis/lock_script.hpp"
#include "redis/redis_connection.hpp"
#include "reference/redis_table.hpp"
#include "support/chance.hpp"
#include "support/clock_control.hpp"
#include "support/redis_server.hpp"

namespace dlock {
namespace {

using reference::RedisTable;
using reference::ReleaseTerms;
using reference::ServerNow;
using test::RedisOptions;
using test::RedisServer;
using test::ShimClock;

/// There are more tokens than owners, and some owners are inside others.
constexpr const char* owners[] = {"a", "a/x", "a/x/y", "b", "b/y", "c", "d", "a-b"};
constexpr int tokens_each = 3;
constexpr int cast_size = static_cast<int>(std::size(owners)) * tokens_each;

enum class Op {
  acquire,
  renew,
  release,
  force,
  advance,
  listen,
  state,
  admit_waiters,
  rejoin,
  record_process,
  know
};

struct Step {
  Op op = Op::state;
  int token = 0;
  std::int64_t limit = 1;
  std::int64_t ttl_ms = 1000;
  std::int64_t floor_ms = 0;
  bool flag_a = false;                   ///< wait; renew with own ttl; unsure; everybody; listen
  bool flag_b = false;                   ///< send a ticket; ignore the min-hold; only ask to stop
  std::int64_t advance_us = 0;           ///< also the ticket, relative to now
  std::optional<std::int64_t> fence_us;  ///< proposed, relative to now; else to the last fence
  bool latest = false;                   ///< for acquire
  bool of_holder = false;                ///< instead of `token`, if there is a holder
};

/// The value of a node's key `alive`: the process that it vouches for, and since when.
struct Alive {
  std::string run_id;
  microseconds since{0};
  std::string flag;
};
constexpr std::chrono::seconds guard_life{120};

/// The value that Op::know sets: none, one that is nearly old enough, or an old one.
std::optional<Alive> known(const Step& step, microseconds clock) {
  if (step.flag_a && step.flag_b) return std::nullopt;
  const auto age = step.flag_b ? guard_life - milliseconds(1500) : std::chrono::hours(1);
  return Alive{step.limit == 1 ? "r1" : "r2", clock - age, step.flag_a ? "a" : "-"};
}

/// The fence that a renewal or a rejoin sends.
std::string fence_brought(const Step& step, Fence last) {
  if (!step.fence_us) return "";
  return std::to_string(std::max<std::int64_t>(1, last.value + *step.fence_us));
}

/// The client of a step of Op::force, which evicts, or asks the holders to stop.
Who client_of(const Step& step) { return Who{"h", step.token, "u", "c", "l"}; }

/// The exit code that a release reports.
std::optional<int> exit_code(const Step& step) {
  return step.limit == 1 ? std::nullopt : std::optional(static_cast<int>(step.limit));
}

std::string token_name(int token) {
  return std::string(owners[token / tokens_each]) + ":" + std::to_string(token);
}

std::string text_of(const Step& step) {
  static constexpr const char* names[] = {"acquire", "renew",          "release", "force",
                                          "advance", "listen",         "state",   "settle",
                                          "rejoin",  "record_process", "know"};
  return std::string(names[static_cast<int>(step.op)]) + " " + token_name(step.token) + " limit " +
         std::to_string(step.limit) + " ttl " + std::to_string(step.ttl_ms) + " floor " +
         std::to_string(step.floor_ms) + (step.flag_a ? " A" : "") + (step.flag_b ? " B" : "") +
         " us " + std::to_string(step.advance_us) +
         (step.fence_us ? " fence " + std::to_string(*step.fence_us) : "") +
         (step.latest ? " latest" : "") + (step.of_holder ? " (the holder's)" : "");
}

Claim claim_of(const Step& step) {
  return Claim{LockKey{"k"},
               Owner{owners[step.token / tokens_each]},
               Token{token_name(step.token)},
               Limit{step.limit},
               milliseconds(step.ttl_ms),
               milliseconds(step.floor_ms),
               Liveness::renewal,
               Who{"h", step.token, "u", "c", "l"},
               step.latest};
}

/// The answer of either side to one step, as comparable words.
using Words = std::vector<std::string>;

std::string number(std::int64_t value) { return std::to_string(value); }

/// A hold as inspect shows it.
std::string seen(const std::string& token, const std::string& owner, Fence fence, Limit limit,
                 milliseconds left, pid_t pid, microseconds since) {
  return token + " owner " + owner + " fence " + number(fence.value) + " limit " +
         number(limit.owners) + " left " + number(left.count()) + " pid " + number(pid) +
         " since " + number(since.count());
}

std::string last_grant(const LastGrant& last) {
  std::string text = "last granted to " + number(last.who.pid) + " at " +
                     number(last.acquired_at.time_since_epoch().count()) + " fence " +
                     number(last.fence.value);
  if (!last.end) return text;
  text += " ended at " + number(last.end->at.time_since_epoch().count());
  if (last.end->exit_code) text += " with " + number(*last.end->exit_code);
  if (last.end->evicted_by) text += " by " + number(last.end->evicted_by->pid);
  return text;
}

/// The C++ implementation.
class TableSide final : public WaiterNotifier {
 public:
  explicit TableSide(bool member) : member_(member) {}

  Words take(const Step& step, microseconds clock) {
    now_ = ServerNow{clock, member_ ? guard(clock) : microseconds(0), member_};
    words_.clear();
    const Token token{token_name(step.token)};
    const HoldEntry* before = table_.stored.find_hold(token);
    const bool handed_over = before != nullptr && before->flag == Flag::provisional &&
                             left_of(*before, clock) > microseconds(0);
    switch (step.op) {
      case Op::acquire:
        acquire(step);
        break;
      case Op::renew: {
        const auto ttl = step.flag_a ? std::nullopt : std::optional(milliseconds(step.ttl_ms));
        const auto lease = table_.renew(token, ttl, now_, *this, brought(step));
        if (lease) {
          answer_renewed(*lease, *table_.stored.find_hold(token), handed_over);
        } else {
          answer_not_held("gone", token);
        }
        break;
      }
      case Op::rejoin: {
        const auto granted = table_.rejoin(claim_of(step), *brought(step), now_, *this);
        if (granted) {
          answer_renewed(granted->lease, *table_.stored.find_hold(token), handed_over);
        } else {
          answer_not_held("gone", token);
        }
        break;
      }
      case Op::record_process:
        record_process(step.limit == 1 ? "r1" : "r2", step.flag_a ? "a" : "-", clock);
        now_.quarantine = guard(clock);
        break;
      case Op::know:
        alive_ = known(step, clock);
        return words_;
      case Op::release: {
        const ReleaseTerms terms{step.flag_a, step.flag_b, milliseconds(step.ttl_ms),
                                 exit_code(step)};
        const auto released = table_.release(token, terms, now_, *this);
        if (released == Released::not_held) {
          answer_not_held("absent", token);
        } else {
          answer({released == Released::yes ? "released" : "left"});
        }
        break;
      }
      case Op::force: {
        std::optional<Fence> fence;
        if (!step.flag_a) fence = some_fence();
        std::vector<std::string> out;
        const Eviction how{fence, client_of(step), step.flag_b};
        for (HoldEntry hold : table_.force(how, now_, *this)) out.push_back(text(hold));
        std::sort(out.begin(), out.end());
        answer(out);
        break;
      }
      case Op::listen:
        if (step.flag_a) {
          listening_.insert(step.token);
        } else {
          listening_.erase(step.token);
        }
        break;
      case Op::state:
        state();
        break;
      case Op::admit_waiters:
        table_.admit_waiters(now_, *this);
        break;
      case Op::advance:
        return words_;
    }
    const bool asked = step.op != Op::listen && step.op != Op::state;
    if (member_ && asked) {
      const auto left = std::chrono::ceil<milliseconds>(now_.quarantine);
      words_.push_back("guarded for " + number(left.count()) + " ms, vouched for " +
                       (alive_ ? alive_->run_id + "/" + alive_->flag : "-"));
    }
    return words_;
  }

  bool wake(const WaiterEntry& waiter, const Message& message) override {
    const int token = waiter.who.pid;
    if (!listening_.contains(token)) return false;
    std::string text = "to " + number(token) + ": ";
    if (const auto* grant = std::get_if<GrantMessage>(&message)) {
      text += "grant " + number(grant->now.count()) + " " + number(grant->lease.count()) + " " +
              number(grant->fence.value) + " ";  // the server id is empty
    } else {
      text += "next " + number(std::get<NextMessage>(message).in.count());
    }
    words_.push_back(text);
    return true;
  }

  /// The fence of a live hold for `force`, the first by token; else a fence that no hold has.
  Fence some_fence() const {
    std::map<std::string, Fence> fences;
    for (const HoldEntry& hold : live_holds()) fences[hold.token.text] = hold.fence;
    return fences.empty() ? Fence{1} : fences.begin()->second;
  }
  Fence last_fence() const { return table_.stored.last_fence; }
  std::optional<int> holder() const {
    for (const HoldEntry& hold : table_.stored.holds) {
      if (hold.inside()) return hold.who.pid;
    }
    return std::nullopt;
  }
  /// Whether a hold has expired so recently that the server may still have it: the server rounds
  /// the lifetime of a key up to a millisecond, and deletes the key after that millisecond.
  bool has_just_ended_one(microseconds clock) const {
    const auto& holds = table_.stored.holds;
    return std::any_of(holds.begin(), holds.end(), [&](const HoldEntry& hold) {
      const auto ago = clock - (hold.at + hold.lease);
      return ago >= microseconds(0) && ago < milliseconds(2);
    });
  }
  Ticket ticket(const Step& step, microseconds clock) const {
    return Ticket{std::max<std::int64_t>(1, clock.count() + step.advance_us)};
  }

 private:
  std::vector<HoldEntry> live_holds() const {
    return table_.stored.live_holds({now_.clock, now_.clock});
  }

  void acquire(const Step& step) {
    Ask ask{step.flag_a, std::nullopt};
    if (step.flag_b && step.flag_a) ask.ticket = ticket(step, now_.clock);
    std::optional<Fence> proposal;
    if (step.fence_us) proposal = Fence{now_.clock.count() + *step.fence_us};
    const auto outcome = table_.acquire(claim_of(step), ask, now_, *this, proposal);
    if (const auto* granted = std::get_if<Granted>(&outcome)) {
      Words words{"granted", number(granted->fence.value)};
      append_predecessor(words);
      answer(words);
      return;
    }
    const Refused& refused = std::get<Refused>(outcome);
    static constexpr const char* whys[] = {"held", "upgrade", "gone", "superseded"};
    const char* why = whys[static_cast<int>(refused.why)];
    if (refused.why == Refusal::Reason::superseded) {
      answer({"refused", why, number(refused.holds.front().who.pid), number(refused.ticket.value)});
      return;
    }
    if (refused.why != Refusal::Reason::held) {
      answer({"refused", why});
      return;
    }
    std::vector<std::string> out{"refused",
                                 why,
                                 number(refused.ticket.value),
                                 number(static_cast<std::int64_t>(refused.ahead)),
                                 number(static_cast<std::int64_t>(refused.waiting)),
                                 number(refused.ask_again.count())};
    append_few(out, refused.holds);
    answer(out);
  }

  void append_few(std::vector<std::string>& out, const std::vector<HoldEntry>& holds) const {
    std::vector<std::string> texts;
    for (const HoldEntry& hold : holds) texts.push_back(text(hold));
    std::sort(texts.begin(), texts.end());
    constexpr std::size_t told = 8;
    if (texts.size() > told) texts.assign(1, "more than eight");
    out.insert(out.end(), texts.begin(), texts.end());
  }

  std::string text(const HoldEntry& hold) const {
    static constexpr const char* flags[] = {"h", "p", "k", "t"};
    const auto at = std::min(hold.at, now_.clock);
    return std::string(flags[static_cast<int>(hold.flag)]) + " " + number(hold.min_hold.count()) +
           " " + number(at.count()) + " " + number(hold.since.count()) + " " +
           number(hold.fence.value) + " " + number(hold.lease.count()) + " " +
           number(hold.ttl.count()) + " " + number(hold.limit.owners) + " " + hold.owner.text +
           " h " + number(hold.who.pid) + " u c l" +
           (hold.stop_asked_by ? " !" + packed_who(*hold.stop_asked_by) : "");
  }

  void state() {
    std::vector<std::string> texts;
    for (const HoldEntry& hold : live_holds()) {
      const bool kept = hold.flag == Flag::cooldown;
      const auto left = std::chrono::ceil<milliseconds>(left_of(hold, now_.clock));
      texts.push_back(seen(hold.token.text, kept ? "" : hold.owner.text, hold.fence, hold.limit,
                           left, hold.who.pid, hold.since));
    }
    std::sort(texts.begin(), texts.end());
    // On the server an old queue expires by itself; the table drops it at the next request.
    const auto in_ms = [](microseconds us) { return std::chrono::floor<milliseconds>(us); };
    const bool gone = in_ms(table_.stored.last_ask) + std::chrono::seconds(120) < in_ms(now_.clock);
    for (const WaiterEntry& waiter : table_.stored.queue) {
      if (gone) break;
      texts.push_back(waiter.token.text + " at " + number(waiter.ticket.value));
    }
    // If an owner has several holds, a node may name another of them.
    if (table_.stored.last && !member_) texts.push_back(last_grant(*table_.stored.last));
    answer(texts);
  }

  /// Of several predecessors whose leases end together, either side may name another.
  void append_predecessor(Words& words) const {
    const auto predecessor = table_.stored.predecessor({now_.clock, now_.clock});
    if (!predecessor) return;
    words.push_back(number(predecessor->left.count()));
  }

  void answer_renewed(milliseconds lease, const HoldEntry& hold, bool handed_over) {
    Words words{"renewed", number(lease.count()), number(hold.fence.value),
                number(hold.limit.owners)};
    words.push_back(hold.stop_asked_by ? packed_who(*hold.stop_asked_by) : "");
    if (handed_over) append_predecessor(words);
    if (words.back().empty()) words.pop_back();
    answer(words);
  }

  void answer_not_held(const char* word, const Token& token) {
    const auto by = table_.stored.evicted_by(token);
    answer(by ? Words{word, packed_who(*by)} : Words{word});
  }

  void answer(std::vector<std::string> words) {
    words_.insert(words_.begin(), words.begin(), words.end());
  }

  std::optional<Fence> brought(const Step& step) const {
    const std::string fence = fence_brought(step, table_.stored.last_fence);
    return fence.empty() ? std::nullopt : std::optional(Fence{std::stoll(fence)});
  }

  microseconds guard(microseconds clock) {
    if (!alive_) return guard_life;
    alive_->since = std::min(alive_->since, clock);
    return std::max(microseconds(0), alive_->since + guard_life - clock);
  }

  void record_process(const std::string& run_id, const std::string& flag, microseconds clock) {
    const bool durable = alive_ && alive_->flag == "a" && flag == "a";
    const bool remembers = durable || (alive_ && alive_->run_id == run_id);
    alive_ = Alive{run_id, remembers ? alive_->since : clock, flag};
  }

  const bool member_;
  std::optional<Alive> alive_;
  RedisTable table_;
  std::set<int> listening_;
  ServerNow now_;
  Words words_;
};

/// The Lua implementation on a real server: one connection asks, another listens for all waiters.
class ScriptSide {
 public:
  ScriptSide(const Endpoint& endpoint, bool member)
      : member_(member), asks_(endpoint), listens_(endpoint) {
    exchange(asks_, {"FLUSHALL"});
    exchange(listens_, {"SUBSCRIBE", "nobody"});
  }

  Words take(const Step& step, microseconds clock, Fence fence_to_force, Fence last,
             bool listen = true) {
    Words words;
    tail_.clear();
    const std::string token = token_name(step.token);
    const Claim claim = claim_of(step);
    switch (step.op) {
      case Op::acquire:
        words = acquire(step, claim, clock);
        break;
      case Op::renew: {
        std::vector<std::string> arguments{"renew", token, step.flag_a ? "" : number(step.ttl_ms)};
        if (step.fence_us) arguments.push_back(fence_brought(step, last));
        words = without_more(run(std::move(arguments)));
        break;
      }
      case Op::rejoin: {
        auto arguments = asking("rejoin", step, claim);
        arguments.push_back(fence_brought(step, last));
        words = without_more(run(std::move(arguments)));
        break;
      }
      case Op::record_process:
        run({"record_process", step.limit == 1 ? "r1" : "r2", step.flag_a ? "a" : "-"});
        break;
      case Op::know:
        know(known(step, clock));
        break;
      case Op::release:
        words = without_more(run(releasing(step, token)));
        break;
      case Op::force:
        words = run(forcing(step, fence_to_force));
        words.erase(words.begin(), words.begin() + 3);
        std::sort(words.begin(), words.end());
        break;
      case Op::listen:
        exchange(listens_, {step.flag_a ? "SUBSCRIBE" : "UNSUBSCRIBE", channel(step.token)});
        break;
      case Op::state:
        words = state(clock);
        break;
      case Op::admit_waiters:
        run({"tidy", ""});
        // The script does not look at this key if the queue is empty.
        exchange(asks_, {"EXISTS", "dlock:{k}:waiters"});
        break;
      case Op::advance:
        break;
    }
    if (listen) heard(words);
    words.insert(words.end(), tail_.begin(), tail_.end());
    return words;
  }

 private:
  static Words forcing(const Step& step, Fence fence) {
    return {step.flag_b ? "stop" : "force", "", step.flag_a ? "" : number(fence.value),
            packed_who(client_of(step))};
  }

  /// An answer without the flag that says whether more work is left.
  static Words without_more(Words words) {
    const bool not_held = words[0] == "gone" || words[0] == "absent";
    const std::ptrdiff_t place = not_held ? 1 : words[0] == "renewed" ? 4 : std::ssize(words) - 1;
    words.erase(words.begin() + place);
    constexpr std::size_t with_predecessor = 7;
    if (words.size() == with_predecessor) words.pop_back();
    return words;
  }

  static Words releasing(const Step& step, const std::string& token) {
    Words arguments{"release", token};
    if (const auto code = exit_code(step)) arguments.push_back(number(*code));
    if (!step.flag_a && !step.flag_b) return arguments;
    arguments.resize(3, "-");
    arguments.insert(arguments.end(),
                     {step.flag_a ? "1" : "0", step.flag_b ? "1" : "0", number(step.ttl_ms)});
    return arguments;
  }
  static std::string channel(int token) { return "dlock:{k}:" + number(token); }

  Reply exchange(RedisConnection& connection, const Request& request) {
    const auto replies = connection.exchange(std::span(&request, 1),
                                             {later(BootClock::now(), milliseconds(20'000)), -1});
    return replies.front();
  }

  static std::vector<std::string> asking(const char* operation, const Step& step,
                                         const Claim& claim) {
    return {operation, claim.token.text, packed_claim(claim), number(step.floor_ms),
            number(std::max(step.ttl_ms, step.floor_ms))};
  }

  void know(const std::optional<Alive>& alive) {
    exchange(asks_, {"DEL", "dlock:alive"});
    if (!alive) return;
    exchange(asks_, {"SET", "dlock:alive",
                     alive->run_id + " " + number(alive->since.count()) + " " + alive->flag});
  }

  Words run(const std::vector<std::string>& arguments) {
    const KeyNames names("dlock:", LockKey{"k"});
    Request request{"EVALSHA",           std::string(lock_script_sha1),
                    member_ ? "5" : "4", names.holds,
                    names.queue,         names.waiters,
                    names.fence};
    if (member_) request.emplace_back("dlock:alive");
    request.insert(request.end(), arguments.begin(), arguments.begin() + 2);
    request.emplace_back();
    request.insert(request.end(), arguments.begin() + 2, arguments.end());
    Reply reply = in_items(exchange(asks_, request));
    if (reply.is_error("NOSCRIPT")) {
      request[0] = "EVAL";
      request[1] = lock_script;
      reply = in_items(exchange(asks_, request));
    }
    REQUIRE_MESSAGE(!reply.is_error(), reply.text);
    Words words;
    for (const Reply& item : reply.items) {
      words.push_back(item.kind == Reply::Kind::integer ? number(item.integer) : item.text);
    }
    if (!member_) return words;
    REQUIRE(words.size() >= 2);
    tail_ = {"guarded for " + words[words.size() - 2] + " ms, vouched for " + words.back()};
    words.resize(words.size() - 2);
    return words;
  }

  Words acquire(const Step& step, const Claim& claim, microseconds clock) {
    const std::string ticket =
        step.flag_b && step.flag_a
            ? number(std::max<std::int64_t>(1, clock.count() + step.advance_us))
            : "";
    auto arguments = asking("acquire", step, claim);
    if (step.flag_a || member_) {
      arguments.insert(arguments.end(), {ticket, step.flag_a ? number(step.token) : ""});
    }
    if (member_) {
      arguments.push_back(step.fence_us ? number(clock.count() + *step.fence_us) : "-");
    }
    if (step.latest) {
      arguments.resize(std::max<std::size_t>(arguments.size(), 7));
      if (!member_) arguments.push_back("-");
      arguments.push_back("latest");
    }
    Words words = run(arguments);
    if (words[0] == "granted") {
      words.erase(words.begin() + 2);
      if (words.size() == 4) words.pop_back();
      return words;
    }
    if (words[1] == "superseded") {
      const pid_t by = parse_hold(words[9], clock.count()).hold.who.pid;
      return {words[0], words[1], number(by), words[2]};
    }
    if (words[1] != "held") return {words[0], words[1]};
    Words kept(words.begin(), words.begin() + 6);
    Words holds(words.begin() + 9, words.end());
    std::sort(holds.begin(), holds.end());
    const bool cut = holds.size() == 8 && live_holds(clock) > 8;
    if (cut) holds.assign(1, "more than eight");
    kept.insert(kept.end(), holds.begin(), holds.end());
    return kept;
  }

  std::size_t live_holds(microseconds clock) {
    const Reply holds = exchange(asks_, {"HGETALL", "dlock:{k}"});
    std::size_t live = 0;
    for (std::size_t i = 1; i < holds.items.size(); i += 2) {
      live += parse_hold(holds.items[i].text, clock.count()).live ? 1 : 0;
    }
    return live;
  }

  Words state(microseconds clock) {
    Words words;
    const Reply holds = exchange(asks_, {"HGETALL", "dlock:{k}"});
    for (std::size_t i = 0; i + 1 < holds.items.size(); i += 2) {
      const StoredHold stored = parse_hold(holds.items[i + 1].text, clock.count());
      if (!stored.live) continue;
      const Holder& hold = stored.hold;
      words.push_back(seen(holds.items[i].text, hold.owner, hold.fence, hold.limit,
                           *hold.lease_left, hold.who.pid, hold.acquired_at.time_since_epoch()));
    }
    std::sort(words.begin(), words.end());
    const Reply queue = exchange(asks_, {"ZRANGE", "dlock:{k}:queue", "0", "-1", "WITHSCORES"});
    for (std::size_t i = 0; i + 1 < queue.items.size(); i += 2) {
      words.push_back(queue.items[i].text + " at " + queue.items[i + 1].text);
    }
    const auto last = parse_last_grant(exchange(asks_, {"GET", "dlock:{k}:fence"}).text);
    if (last && !member_) words.push_back(last_grant(*last));
    return words;
  }

  /// All messages published so far: the reply to PING comes after them.
  void heard(Words& words) {
    exchange(listens_, {"PING"});
    while (true) {
      const auto next = listens_.next_message(BootClock::now(), -1);
      const auto* message = std::get_if<Published>(&next);
      if (message == nullptr) return;
      words.push_back("to " + message->channel.substr(message->channel.rfind(':') + 1) + ": " +
                      message->payload);
    }
  }

  const bool member_;
  Words tail_;
  RedisConnection asks_;
  RedisConnection listens_;
};

constexpr microseconds clock_start{1'790'000'000'000'000};

/// Runs the steps on an empty key; returns the first difference, or nothing.
class Twins {
 public:
  Twins() : server_(options()) { endpoint_.socket_path = server_.socket_path(); }

  std::optional<std::string> difference(const std::vector<Step>& steps, bool member,
                                        std::size_t& at) {
    TableSide table(member);
    clock_.set(clock_start);
    ScriptSide script(endpoint_, member);
    auto clock = clock_start;
    for (at = 0; at < steps.size(); ++at) {
      Step step = steps[at];
      if (step.of_holder) step.token = table.holder().value_or(step.token);
      // On the server, any look deletes expired entries for good, and a look at all entries
      // corrects times in the future: both sides look before and after a step back. They also look
      // at once if a release, which reads no clock, could find an expired hold a moment longer.
      const bool back = step.op == Op::advance && step.advance_us < 0;
      if (back) admit_waiters(table, script, clock);
      if (step.op == Op::advance) {
        clock = std::max(clock_start, clock + microseconds(step.advance_us));
        clock_.set(clock);
        if (back || table.has_just_ended_one(clock)) admit_waiters(table, script, clock);
      }
      const Fence fence = table.some_fence(), last = table.last_fence();
      const Words ours = table.take(step, clock);
      // Looking costs a round trip, so an extra message is found only a few steps later.
      const bool told = std::any_of(ours.begin(), ours.end(),
                                    [](const auto& word) { return word.starts_with("to "); });
      const Words theirs = script.take(step, clock, fence, last, told || at % 5 == 0);
      if (ours != theirs) return "C++:\n" + text(ours) + "Lua:\n" + text(theirs);
    }
    return std::nullopt;
  }

 private:
  RedisOptions options() const { return {.env = clock_.environment()}; }

  static void admit_waiters(TableSide& table, ScriptSide& script, microseconds clock) {
    Step step;
    step.op = Op::admit_waiters;
    CHECK(script.take(step, clock, Fence{}, Fence{}) == table.take(step, clock));
  }

  static std::string text(const Words& words) {
    std::string all;
    for (const std::string& word : words) all += "    " + word + "\n";
    return all;
  }

  ShimClock clock_;
  RedisServer server_;
  Endpoint endpoint_;
};

template <typename T>
T one_of(std::mt19937_64& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

Step random_step(std::mt19937_64& random, bool member) {
  Step step;
  step.op = one_of(random, {Op::acquire, Op::acquire, Op::acquire, Op::acquire, Op::acquire,
                            Op::renew, Op::renew, Op::release, Op::release, Op::release,
                            Op::advance, Op::advance, Op::listen, Op::listen, Op::state});
  if (random() % 60 == 0) step.op = Op::force;
  if (member && random() % 8 == 0) step.op = Op::rejoin;
  if (member && random() % 20 == 0)
    step.op = one_of(random, {Op::record_process, Op::know, Op::know});
  if (member && (step.op == Op::rejoin || random() % 3 != 0)) {
    step.fence_us = one_of<std::int64_t>(random, {0, 1, -1, 2, -1000, 1000, 50'000, 59'999'999,
                                                  60'000'001, -59'999'999, -70'000'000});
  }
  step.token = static_cast<int>(random() % cast_size);
  step.limit = one_of<std::int64_t>(random, {1, 1, 1, 2, 3, 0, 0});
  step.ttl_ms = one_of<std::int64_t>(random, {100, 1000, 1500, 5000, 30'000});
  step.floor_ms = one_of<std::int64_t>(random, {0, 0, 0, 0, 700, 40'000});
  step.flag_a = random() % 3 != 0;
  step.flag_b = random() % 4 == 0;
  step.latest = random() % 4 == 0;
  step.advance_us =
      one_of<std::int64_t>(random, {0, 1, 999, 100'000, 100'001, 700'000, 1'000'000, 2'000'000,
                                    4'900'000, 6'000'000, 20'000'000, 35'999'999, 36'000'000,
                                    76'000'000, 121'000'000, -1, -50'000, -3'000'000});
  return step;
}

/// A step of a few jobs that wait for one another, so that most releases hand over.
Step step_of_a_job(std::mt19937_64& random, bool member) {
  Step step = random_step(random, member);
  if (step.op == Op::force) step.op = Op::release;
  if (step.op == Op::acquire && random() % 3 == 0) step.op = Op::renew;
  if (step.op == Op::release) step.flag_a = step.flag_b = random() % 10 == 0;
  if (step.op == Op::listen) step.flag_a = random() % 10 != 0;
  if (step.op == Op::know) step.flag_a = step.flag_b = false;
  step.token = one_of(random, {0, 1, 3, 9, 15, 16, 18, 21});
  step.of_holder = (step.op == Op::release || step.op == Op::renew) && random() % 3 != 0;
  if (random() % 20 != 0) step.limit = 1;
  if (random() % 4 != 0) step.floor_ms = 0;
  if (random() % 3 == 0) step.ttl_ms = one_of(random, {30'000, 100'000});
  const auto longest = one_of<std::int64_t>(random, {1000, 300'000, 4'900'000, 76'000'000});
  if (step.advance_us > longest) step.advance_us = longest;
  if (random() % 12 == 0) step.advance_us = 76'000'000;
  return step;
}

/// Every third round consists of such jobs.
std::vector<Step> random_steps(std::uint64_t seed, std::size_t count, bool member) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  const bool jobs = seed % 3 == 0;
  for (std::size_t i = 0; i < count; ++i) {
    steps.push_back(jobs ? step_of_a_job(random, member) : random_step(random, member));
  }
  return steps;
}

/// Leaves out ever shorter runs of steps while a difference remains.
std::vector<Step> shrunk(Twins& twins, std::vector<Step> steps, bool member) {
  std::size_t at = 0;
  for (std::size_t run = steps.size() / 2; run > 0; run /= 2) {
    for (std::size_t first = 0; first + run <= steps.size();) {
      std::vector<Step> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(first),
                  fewer.begin() + static_cast<std::ptrdiff_t>(first + run));
      if (twins.difference(fewer, member, at)) {
        fewer.resize(at + 1);
        steps = fewer;
      } else {
        first += run;
      }
    }
  }
  return steps;
}

}  // namespace

TEST_CASE("the reference table and the script of Redis answer random requests alike") {
  const auto rounds = static_cast<std::uint64_t>(test::runs_of_this_test(60));
  constexpr std::size_t steps_a_round = 400;
  Twins twins;
  const std::uint64_t seed = test::seed_of_this_run();
  MESSAGE("DLOCK_TEST_SEED=" << seed);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const bool member = round % 2 == 1;
    auto steps = random_steps(seed + round, steps_a_round, member);
    std::size_t at = 0;
    if (!twins.difference(steps, member, at)) continue;
    steps.resize(at + 1);
    steps = shrunk(twins, steps, member);
    std::string story;
    for (const Step& step : steps) story += "  " + text_of(step) + "\n";
    const auto difference = twins.difference(steps, member, at);
    FAIL("seed " << seed << " round " << round << ":\n" << story << difference.value_or("?"));
  }
}

}  // namespace dlock
