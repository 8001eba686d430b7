#include "support/lying_relay.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "lock/store.hpp"
#include "support/resp.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t one_write = 65536;

std::deque<std::string> needles_of(int port) {
  const std::string number = std::to_string(port);
  return {":" + number + "\r\n", "\r\n" + number + "\r\n", ".1:" + number};
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return text;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// What has other numbers, or says more, is as true to a client that has only this server.
bool begins_as(const std::string& told, const std::string& truth) {
  return without_digits(told).starts_with(without_digits(truth));
}

/// Whether it grants or renews, with a fence that there can be.
bool gives_hold(std::string_view reply) {
  const auto renewed = reply.find("renewed ");
  reply.remove_prefix(std::min(reply.size(), std::min(renewed, reply.find("granted "))));
  take_until(reply, ' ');
  if (renewed != std::string_view::npos) take_until(reply, ' ');  // the lease
  return parse_number(take_until(reply, ' '), 1, largest_fence).has_value();
}

bool tells_of_grant(const std::string& truth, const std::string& told) {
  if (!gives_hold(told)) return false;
  if (contains(truth, "granted ") || contains(truth, "renewed ")) return begins_as(told, truth);
  const bool refuses = contains(truth, "refused") || truth.starts_with('-');
  const bool answers = (refuses && contains(told, "granted ")) ||
                       (contains(truth, "gone ") && contains(told, "renewed "));
  return answers && message_size(told).has_value();
}

bool tells_of_hand_over(const std::string& truth, const std::string& told) {
  return contains(told, "\r\ngrant ") && begins_as(told, truth);
}

}  // namespace

LyingRelay::LyingRelay(std::vector<Address> servers, LiePlan plan)
    : plan_(std::move(plan)),
      thread_([this](std::vector<pollfd>& fds) { return watch(fds); }, [this] { tick(); }) {
  thread_.ask([&] {
    for (Address& server : servers) {
      Front& front = fronts_.emplace_back();
      if (!server.path.empty()) front.address.path = dir_ / std::to_string(fronts_.size());
      front.server = std::move(server);
      front.listener = listen_at(front.address);
    }
  });
}

std::vector<Address> LyingRelay::addresses() const {
  std::vector<Address> all;
  for (const Front& front : fronts_) all.push_back(front.address);
  return all;
}

std::size_t LyingRelay::told_of_grant() {
  std::size_t count = 0;
  thread_.ask([&] { count = granting_.size(); });
  return count;
}

bool LyingRelay::told_of_hand_over() {
  bool told = false;
  thread_.ask([&] { told = has_handed_over_; });
  return told;
}

Deadline LyingRelay::last_truth(Deadline then) {
  Deadline last{};
  thread_.ask([&] {
    const auto after = std::upper_bound(truths_.begin(), truths_.end(), then);
    if (after != truths_.begin()) last = *std::prev(after);
  });
  return last;
}

Deadline LyingRelay::watch(std::vector<pollfd>& fds) const {
  Deadline wake = never;
  for (const Front& front : fronts_) fds.push_back({front.listener.get(), POLLIN, 0});
  for (const Link& link : links_) {
    const bool says = !link.to_client.empty() || link.then == FalseReply::Then::repeat;
    const bool says_now = says && link.pause == milliseconds(0);
    if (says && !says_now) wake = std::min(wake, link.next_byte);
    fds.push_back({link.client.get(), static_cast<short>(POLLIN | (says_now ? POLLOUT : 0)), 0});
    fds.push_back({link.upstream.get(), POLLIN, 0});
  }
  return wake;
}

void LyingRelay::tick() {
  for (std::size_t i = 0; i < fronts_.size(); ++i) {
    while (readable(fronts_[i].listener.get())) {
      Fd client(accept4(fronts_[i].listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) break;
      Fd upstream = connect_to(fronts_[i].server);
      if (!upstream) continue;
      Link& link = links_.emplace_back();
      link.server = i;
      link.client = std::move(client);
      link.upstream = std::move(upstream);
    }
  }
  for (Link& link : links_) {
    forward_requests(link);
    hear_replies(link);
    send_on(link);
  }
  links_.remove_if([](const Link& link) { return link.is_over; });
}

void LyingRelay::forward_requests(Link& link) {
  char block[one_write];
  const ssize_t n = recv(link.client.get(), block, sizeof block, MSG_DONTWAIT);
  if (n > 0) send_all(link.upstream.get(), {block, static_cast<std::size_t>(n)});
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) link.is_over = true;
}

void LyingRelay::hear_replies(Link& link) {
  if (link.is_over) return;
  char block[one_write];
  const ssize_t n = recv(link.upstream.get(), block, sizeof block, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    if (link.then == FalseReply::Then::go_on) link.then = FalseReply::Then::close;
    link.upstream.reset();
    return;
  }
  if (n > 0) link.heard.append(block, static_cast<std::size_t>(n));
  while (!link.heard.empty()) {
    const auto size = message_size(link.heard);
    if (!size) return;
    pass_on(link, link.heard.substr(0, *size));
    link.heard.erase(0, *size);
  }
}

void LyingRelay::pass_on(Link& link, std::string reply) {
  if (link.then != FalseReply::Then::go_on) return;  // that stream has ended, or never does
  reply = with_own_addresses(std::move(reply));
  const bool lies = lies_now(link);
  const FalseReply told = lies ? plan_.lie->tell(reply) : FalseReply{reply};
  if (contains(reply, "refused")) ++refusals_;
  const bool grants = tells_of_grant(reply, told.bytes);
  if (grants) granting_.insert(link.server);
  if (grants || begins_as(told.bytes, reply)) truths_.push_back(BootClock::now());
  if (tells_of_hand_over(reply, told.bytes)) has_handed_over_ = true;
  if (lies) return say(link, told);
  link.to_client += reply;
}

bool LyingRelay::lies_now(const Link& link) {
  if (link.server >= plan_.liars) return false;
  const std::size_t number = ++replies_;
  return plan_.at > 0 && (plan_.goes_on ? number >= plan_.at : number == plan_.at);
}

void LyingRelay::say(Link& link, const FalseReply& what) {
  link.to_client += what.bytes;
  link.then = what.then;
  link.again = what.again;
  link.pause = what.pause;
  link.next_byte = BootClock::now();
}

void LyingRelay::send_on(Link& link) {
  if (link.is_over) return;
  const bool repeats = link.then == FalseReply::Then::repeat;
  const std::size_t at_once = link.pause > milliseconds(0) ? 1 : one_write;
  while (repeats && link.to_client.size() < at_once) link.to_client += link.again;
  if (!link.to_client.empty() && BootClock::now() >= link.next_byte) {
    const ssize_t n = send(link.client.get(), link.to_client.data(),
                           std::min(at_once, link.to_client.size()), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) link.is_over = true;
    if (n > 0) link.to_client.erase(0, static_cast<std::size_t>(n));
    if (n > 0 && at_once == 1) link.next_byte = later(BootClock::now(), link.pause);
  }
  if (!link.to_client.empty()) return;
  // A close with something unread would be a reset: what the client may have sent is read first.
  if (link.then == FalseReply::Then::close) shutdown(link.client.get(), SHUT_WR);
  if (link.then == FalseReply::Then::reset) {
    reset_connection(link.client);
    link.is_over = true;
  }
}

std::string LyingRelay::with_own_addresses(std::string reply) const {
  for (const Front& front : fronts_) {
    if (!front.address.path.empty()) continue;
    const auto ours = needles_of(front.address.port), theirs = needles_of(front.server.port);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      // Free ports have five digits, so lengths stay right.
      for (auto at = reply.find(theirs[i]); at != std::string::npos; at = reply.find(theirs[i])) {
        reply.replace(at, theirs[i].size(), ours[i]);
      }
    }
  }
  return reply;
}

}  // namespace dlock::test
