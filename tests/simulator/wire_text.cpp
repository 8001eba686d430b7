#include "simulator/wire_text.hpp"

namespace dlock::sim {
namespace {

std::string ms(milliseconds span) { return std::to_string(span.count()) + " ms"; }

std::string text_of(Fence fence) { return std::to_string(fence.value); }

std::string text_of(const Granted& granted) {
  return "granted " + text_of(granted.fence) + " for " + ms(granted.lease);
}

std::string text_of(const Refused& refused) {
  return "refused, " + std::to_string(refused.holds.size()) + " inside, " +
         std::to_string(refused.ahead) + " ahead, ask again in " + ms(refused.ask_again);
}

}  // namespace

std::string text_of(const Token& token) {
  return token.text.size() < 4 ? token.text : token.text.substr(token.text.size() - 4);
}

std::string text_of(const Request& request) {
  if (const auto* vote = std::get_if<Vote>(&request)) {
    const Ask& ask = vote->ask;
    return "vote for " + text_of(vote->claim.token) + " with " + text_of(vote->proposal) +
           (ask.wait ? ", waits" : "") +
           (ask.ticket ? " at " + std::to_string(ask.ticket->value) : "");
  }
  if (const auto* renewal = std::get_if<Renewal>(&request)) {
    return "renew " + text_of(renewal->claim.token) + " as " +
           text_of(renewal->terms.granted.value_or(Fence{}));
  }
  if (const auto* rejoining = std::get_if<Rejoining>(&request)) {
    return "rejoin " + text_of(rejoining->claim.token) + " as " + text_of(rejoining->fence);
  }
  if (const auto* release = std::get_if<WireRelease>(&request)) {
    return "release " + text_of(release->token) + (release->terms.unsure ? ", unsure" : "");
  }
  return "record_process for " + std::get<RecordProcess>(request).run;
}

std::string text_of(const Said& said) {
  std::string text = "done";
  if (const auto* answer = std::get_if<std::variant<Granted, Refused>>(&said.answer)) {
    text = std::visit([](const auto& each) { return text_of(each); }, *answer);
  } else if (const auto* granted = std::get_if<std::optional<Granted>>(&said.answer)) {
    text = *granted ? text_of(**granted) : "gone";
  } else if (const auto* released = std::get_if<Released>(&said.answer)) {
    text = *released == Released::yes          ? "released"
           : *released == Released::left_queue ? "left the queue"
                                               : "not held";
  }
  if (said.guard > milliseconds(0)) text += ", guarded for " + ms(said.guard);
  if (said.remembered_run != said.run) text += ", not recorded";
  return text;
}

std::string text_of(const Message& message) {
  if (const auto* next = std::get_if<NextMessage>(&message)) return "next in " + ms(next->in);
  return "grant " + text_of(std::get<GrantMessage>(message).fence);
}

}  // namespace dlock::sim
