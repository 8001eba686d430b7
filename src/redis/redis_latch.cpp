#include "base/error.hpp"
#include "base/text.hpp"
#include "redis/latch_script.hpp"
#include "redis/redis_store.hpp"
#include "redis/script_answer.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

LatchState state_from(const Reply& reply) {
  return {number(reply, 0), number(reply, 1), span(reply, 2)};
}

}  // namespace

LatchState RedisStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                  const CallOptions& call_options) {
  const std::vector<std::string> arguments{"open", std::to_string(terms.count),
                                           std::to_string(terms.ttl.count())};
  return ask_latch(key, arguments, false, call_options).value_or(LatchState());
}

std::optional<LatchState> RedisStore::arrive(const LockKey& key, const ArrivalId& id,
                                             const CallOptions& call_options) {
  return ask_latch(key, {"arrive", id.text}, false, call_options);
}

std::optional<LatchState> RedisStore::look_at_latch(const LockKey& key, bool listen,
                                                    const CallOptions& call_options) {
  return ask_latch(key, {"read"}, listen, call_options);
}

std::optional<LatchState> RedisStore::ask_latch(const LockKey& key,
                                                const std::vector<std::string>& arguments,
                                                bool listen, const CallOptions& call_options) {
  const std::string latch = KeyNames(terms_.prefix, key).latch;
  LinkId unanswered;
  const ScriptRun run{.text = latch_script,
                      .sha1 = latch_script_sha1,
                      .keys = {latch},
                      .arguments = arguments,
                      .channel = listen ? latch : "",
                      .unanswered = &unanswered};
  Backoff pauses = pauses_of_redis();
  while (true) {
    unanswered = {};
    // The half of the time, so that there is some for another try; a Cluster's router tries itself.
    const auto half = left_until(call_options.deadline) / (servers_->is_cluster() ? 1 : 2);
    const auto answer_by = std::min(call_options.deadline, later(BootClock::now(), half));
    ScriptReply reply;
    try {
      reply = servers_->run_script(run, {answer_by, call_options.cancel_fd});
    } catch (const Error& error) {
      // A server that refuses the connection has not run the script.
      const bool is_silent = unanswered.was_opened() || BootClock::now() >= answer_by;
      if (error.kind() != ErrorKind::unavailable || !is_silent ||
          !pauses.fits(call_options.deadline))
        throw;
      pause(pauses.next(), call_options);
      continue;
    }
    return latch_from(key, reply);
  }
}

std::optional<LatchState> RedisStore::latch_from(const LockKey& key,
                                                 const ScriptReply& reply) const {
  if (is_of_class(reply, "WRONGTYPE") || is_of_class(reply, "DLOCKDATA")) {
    throw Error(ErrorKind::wrong_data,
                reply.link.client->name() + ": " + escaped(key.text) +
                    ": the key holds data that is not a latch (it said: " + escaped(reply.text) +
                    ")" + redis_keys_text(terms_.prefix, key));
  }
  check(key, reply);
  const auto state = state_from(reply);
  return state.count > 0 ? std::optional(state) : std::nullopt;
}

Wake::Reason RedisStore::sleep_at_latch(const LockKey& key, Deadline until, int cancel_fd) {
  const auto heard = servers_->next_message(KeyNames(terms_.prefix, key).latch, until, cancel_fd);
  const auto* why = std::get_if<Wake::Reason>(&heard);
  return why != nullptr ? *why : Wake::Reason::changed;
}

}  // namespace dlock
