#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/backoff.hpp"
#include "redis/latch_script.hpp"
#include "redis/redis_store.hpp"
#include "redis/script_answer.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

LatchPart part_from(const Reply& reply) {
  const std::string generation(word(reply, 3));
  LatchPart part{{number(reply, 0), number(reply, 1), span(reply, 2), generation}, {}};
  for (std::size_t i = 4; i < reply.items.size(); ++i) {
    part.arrived.push_back({reply.items[i].text});
  }
  return part;
}

std::optional<LatchState> state_of(const std::optional<LatchPart>& part) {
  return part ? std::optional(part->state) : std::nullopt;
}

}  // namespace

LatchState RedisStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                  const CallOptions& call_options) {
  return ask_latch(key, opening(terms), false, call_options).value_or(LatchPart()).state;
}

std::vector<std::string> RedisStore::opening(const LatchTerms& terms) const {
  return {"open",
          std::to_string(terms.count),
          std::to_string(terms.ttl.count()),
          told(),
          terms.generation,
          "",
          ""};
}

std::optional<LatchState> RedisStore::arrive(const LockKey& key, const ArrivalId& id,
                                             const CallOptions& call_options) {
  return state_of(ask_latch(key, {"arrive", id.text, told()}, false, call_options));
}

std::optional<LatchState> RedisStore::look_at_latch(const LockKey& key, bool listen,
                                                    const CallOptions& call_options) {
  return state_of(ask_latch(key, {"read", "1", "0"}, listen, call_options));
}

std::optional<LatchPart> RedisStore::ask_latch(const LockKey& key,
                                               const std::vector<std::string>& arguments,
                                               bool listen, const CallOptions& call_options) {
  const std::string latch = KeyNames(terms_.prefix, key).latch;
  const ScriptRun run{latch_script, latch_script_sha1, {latch}, arguments, listen ? latch : ""};
  Backoff pauses(call_options);
  while (true) {
    const int before = links();
    const auto half = left_until(call_options.deadline) / 2;
    const auto answer_by = std::min(call_options.deadline, later(BootClock::now(), half));
    try {
      const Reply reply = run_script(run, {answer_by, call_options.cancel_fd});
      if (is_of_class(reply, "WRONGTYPE") || is_of_class(reply, "DLOCKDATA")) {
        throw Error(ErrorKind::wrong_data,
                    name() + ": " + escaped(key.text) +
                        ": the key holds data that is not a latch (it said: " +
                        escaped(reply.text) + ")" + redis_keys_text(terms_.prefix, key));
      }
      check(key, reply);
      auto part = part_from(reply);
      return part.state.count > 0 ? std::optional(std::move(part)) : std::nullopt;
    } catch (const Error& error) {
      // Who refuses to be connected to has not done it, nor has who answers with an error.
      const bool silent = links() > before || BootClock::now() >= answer_by;
      const bool may_be_lost = silent && !is_open();
      if (error.trouble() != ErrorKind::unavailable || !may_be_lost || !pauses.fit()) throw;
    }
    pauses.take();
  }
}

Wake::Reason RedisStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  const auto heard = next_on(KeyNames(terms_.prefix, key).latch, until, cancel_fd);
  const auto* why = std::get_if<Wake::Reason>(&heard);
  return why != nullptr ? *why : Wake::Reason::changed;
}

}  // namespace dlock
