#include "redis/script_answer.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "redis/protocol_text.hpp"

namespace dlock {

void unexpected_answer() {
  throw Error(ErrorKind::unavailable, "it answered what no version of dlock's script answers");
}

const Reply& item(const Reply& reply, std::size_t i) {
  if (!reply.is_array(i + 1)) unexpected_answer();
  return reply.items[i];
}

std::string_view word(const Reply& reply, std::size_t i) { return item(reply, i).text; }

/// Scripts answer with integers and with decimal text, for what Lua's numbers would round.
std::int64_t number(const Reply& reply, std::size_t i) {
  const Reply& one = item(reply, i);
  return one.kind == Reply::Kind::integer ? one.integer : server_number(one.text);
}

milliseconds span(const Reply& reply, std::size_t i) {
  const Reply& one = item(reply, i);
  return server_span(one.kind == Reply::Kind::integer ? std::to_string(one.integer) : one.text);
}

Reply in_items(Reply reply) {
  if (reply.kind != Reply::Kind::text) return reply;
  Reply list;
  list.kind = Reply::Kind::array;
  std::string_view left = reply.text;
  constexpr std::size_t most = 8;
  while (!left.empty() && list.items.size() < most) {
    Reply item;
    item.kind = Reply::Kind::text;
    item.text = take_until(left, ' ');
    list.items.push_back(std::move(item));
  }
  return list;
}

std::vector<Holder> holders_from(const Reply& reply, std::size_t first, std::int64_t now) {
  std::vector<Hold> holds;
  for (std::size_t i = first; i < reply.items.size(); ++i) {
    holds.push_back(parse_hold(reply.items[i].text, now).hold);
  }
  return holders_of(std::move(holds));
}

Refusal refusal_from(const Reply& reply) {
  Refusal refusal;
  const auto why = word(reply, 1);
  if (why == "upgrade") refusal.why = Refusal::Reason::upgrade;
  if (why == "gone") refusal.why = Refusal::Reason::gone;
  if (why == "superseded") refusal.why = Refusal::Reason::superseded;
  refusal.ticket = Ticket{number(reply, 2)};
  refusal.ahead = static_cast<std::size_t>(number(reply, 3));
  refusal.waiting = static_cast<std::size_t>(number(reply, 4));
  refusal.ask_again_in = span(reply, 5);
  refusal.holders = static_cast<std::size_t>(number(reply, 6));
  refusal.held_by = holders_from(reply, 9, number(reply, 7));
  return refusal;
}

}  // namespace dlock
